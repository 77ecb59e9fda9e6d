"""One durable function hop beside a raw nats-py publish-pull-ack loop, in turns in the same run.

    python benchmarks/hop.py [--quick] [--json FILE]

Both send 1 KiB through a file-backed work queue on one host and wait for each message to be done before
the next one. Ours adds the event contract, validation, the lane policy, the invoker and a trace span.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import nats
import uvloop
from _report import Measurement, percentile, report
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

from benchmarks.noop import Payload
from bus import subjects
from bus.contracts import Event, Lane
from bus.contracts.codec import encode
from bus.headers import event_headers
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import Delivery, Settlement
from bus.store.directory import DirectoryObjectStore
from bus.tensors.plane import Plane
from functions import Context, function
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.encoder_cache import EncoderCache
from functions.flow.catalog import PlanCache
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.invoker import Invoker, Services
from functions.model import LoadedModel
from functions.registry import registry
from infra.local.nats_server import NatsServer

PAYLOAD = b"x" * 1024


@function("noop.hop", group="noop")
async def hop(context: Context[Any], inputs: Payload) -> Payload:
    """Hand the payload on."""
    return inputs


class _Watched(Invoker):
    """Tells when a delivery is settled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.done = asyncio.Event()

    async def __call__(self, delivery: Delivery, settlement: Settlement) -> None:
        await super().__call__(delivery, settlement)
        self.done.set()


async def _raw(url: str, token: str, rounds: int) -> list[float]:
    connection = await nats.connect(url, token=token)
    stream = connection.jetstream()
    await stream.add_stream(StreamConfig(name="RAW", subjects=["raw.work"], retention=RetentionPolicy.WORK_QUEUE))
    pull = await stream.pull_subscribe("raw.work", "raw", config=ConsumerConfig(ack_wait=5))
    times = []
    for number in range(rounds):
        started = time.perf_counter()
        await stream.publish("raw.work", PAYLOAD, headers={"Nats-Msg-Id": f"raw-{time.time_ns()}-{number}"})
        (message,) = await pull.fetch(1)
        await message.ack()
        times.append(time.perf_counter() - started)
    await connection.close()
    return times


async def _ours(bus: NatsBus, invoker: _Watched, rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        event = Event(
            request=f"hop{time.time_ns()}-{number}", stage="hop", function="noop.hop", pipeline="none",
            created_s=time.time(), inputs={"data": PAYLOAD},
        )  # fmt: skip
        invoker.done.clear()
        started = time.perf_counter()
        await bus.publish(
            subjects.work("noop.hop", Lane.INTERACTIVE), encode(event),
            message_id=event.message_id, headers=event_headers(event),
        )  # fmt: skip
        await invoker.done.wait()
        times.append(time.perf_counter() - started)
    return times


async def _measure(rounds: int, turns: int) -> list[Measurement]:
    raw: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with NatsServer(path, path) as server, DirectoryObjectStore(path / "store") as store:
            async with NatsBus(NatsConfig(url=server.url, token=server.token)) as bus:
                await bus.setup()
                await bus.ensure_function("noop.hop")
                services = Services(
                    bus=bus, store=store, tensors=Plane(store, directory=path / "tensors"), worker="bench",
                    router=Router(bus, Joins(await bus.bucket("joins"))), plans=PlanCache(await bus.bucket("plans")),
                    cache=StageCache(await bus.bucket("cache")),
                    encoder_cache=EncoderCache(await bus.bucket("encoded"), store),
                    cancellations=Cancellations(await bus.bucket("cancels")),
                )  # fmt: skip
                spec = registry.get("noop.hop")
                invoker = _Watched(spec, LoadedModel(None), services)
                await bus.serve("noop.hop", spec.slots, invoker)
                await _ours(bus, invoker, 50)
                for _ in range(turns):
                    raw += await _raw(server.url, server.token, rounds)
                    ours += await _ours(bus, invoker, rounds)
    results = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value, peer_value = percentile(ours, share) * 1e3, percentile(raw, share) * 1e3
        ratio = value / peer_value
        goal = "<= 2x raw" if share == 0.5 else None
        results.append(
            Measurement(
                name=f"durable hop, 1 KiB, {name}",
                value=value,
                unit="ms",
                peer="raw nats-py",
                peer_value=peer_value,
                ratio=ratio,
                goal=goal,
                ok=None if goal is None else ratio <= 2,
            )
        )
    return results


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="raw nats-py is always measured")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    report(uvloop.run(_measure(300 if arguments.quick else 1000, 3 if arguments.quick else 5)), arguments.json)


if __name__ == "__main__":
    main()
