"""A burst of requests against a stack without workers, beside one that has as many as it will start.

    python benchmarks/burst.py [--quick] [--json FILE]

Fifty sentences at once over HTTP, each a request of its own. Told are the times to the first and to the last answer,
how many workers there were at most, and how many requests had no answer; medians of several rounds. And, on the bus
alone, the time from the publication of work for a group without workers until its first worker is ordered.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from _report import Measurement, report
from _stack import processes, stack

from bus import subjects
from bus.contracts import Request
from bus.contracts.codec import encode
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from infra.local.stack import Stack
from infra.settings import load_settings
from warmpool.process import Process

REQUESTS, MOST = 50, 2
SCALED = f"defaults: {{tier: template, max: {MOST}}}"


def workers(data: Path) -> int:
    """Worker processes that serve text.embed's group."""
    names = (Path(f"/proc/{pid}/comm") for pid in processes(data))
    return sum(path.exists() and path.read_text().startswith("omnibus-encode") for path in names)


async def burst(url: str, data: Path) -> tuple[list[float], int, int]:
    """Seconds to each answer, the most workers, and how many requests failed."""
    most, times, failed = 0, list[float](), 0
    started_s = time.monotonic()

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        nonlocal failed
        answer = await client.post("/v1/embeddings", json={"model": "embed", "input": f"Sentence number {number}."})
        failed += answer.status_code != 200
        times.append(time.monotonic() - started_s)

    limits = httpx.Limits(max_connections=REQUESTS)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        asked = asyncio.gather(*(ask(client, number) for number in range(REQUESTS)))
        while not asked.done():
            await asyncio.wait([asked], timeout=0.2)
            most = max(most, workers(data))
        await asked
    return times, most, failed


def rounds(scaled: bool, count: int) -> tuple[float, float, int, int]:
    """Median seconds to the first and to the last answer, the most workers, failures."""
    first, last, most, failed = list[float](), list[float](), 0, 0
    with tempfile.TemporaryDirectory() as name:
        data, deployment = Path(name) / "data", Path(name) / "warm.yaml"
        deployment.write_text(SCALED)
        fixed = ["--workers", f"media=1,encode={MOST},generate=1"]
        with stack(Path(name), *(["--scale-to-zero", "--warm", str(deployment)] if scaled else fixed)) as info:
            # The template of a stack that has just started is not there yet.
            body = {"model": "embed", "input": "The first."}
            httpx.post(f"{info.gateway_url}/v1/embeddings", json=body, timeout=60).raise_for_status()
            for _ in range(count):
                while scaled and workers(data):
                    time.sleep(0.2)
                times, peak, bad = asyncio.run(burst(info.gateway_url, data))
                first.append(min(times))
                last.append(max(times))
                most, failed = max(most, peak), failed + bad
    return median(first), median(last), most, failed


async def orders(count: int) -> list[float]:
    """Seconds from the call that publishes to the call that starts a worker, in the stack's own process."""
    seconds, called_s = list[float](), asyncio.Queue[float]()
    with tempfile.TemporaryDirectory() as name:
        deployment = Path(name) / "warm.yaml"
        deployment.write_text(SCALED)
        settings = load_settings(data=Path(name) / "data", port=0, warm=deployment, scale_to_zero=True)
        async with Stack(settings) as running:
            pool = running.pool
            start = pool.starter.start

            async def stamped(*arguments: Any) -> Process:
                called_s.put_nowait(time.monotonic())
                return await start(*arguments)

            pool.starter.start = stamped  # type: ignore[method-assign]
            async with NatsBus(NatsConfig(url=running.nats.url, token=running.nats.token)) as bus:
                for number in range(count):
                    request = Request(request=f"order-{number}", pipeline="embed", inputs={"texts": ["A sentence."]})
                    subject = subjects.work(subjects.START_FUNCTION, request.lane)
                    started_s = time.monotonic()
                    await bus.publish(subject, encode(request), message_id=request.request)
                    seconds.append(await called_s.get() - started_s)
                    while pool.members:
                        await asyncio.sleep(0.05)
                    while not called_s.empty():
                        called_s.get_nowait()
    return seconds


def measured(count: int) -> list[Measurement]:
    """Both stacks."""
    fixed, scaled = rounds(False, count), rounds(True, count)
    results = [
        Measurement(
            name=f"{REQUESTS} requests from zero: {what}",
            value=scaled[place] * 1e3,
            unit="ms",
            peer=f"{MOST} workers there",
            peer_value=fixed[place] * 1e3,
            ratio=scaled[place] / fixed[place],
        )
        for place, what in ((0, "first answer"), (1, "last answer"))
    ]
    ordered_s = median(asyncio.run(orders(count)))
    return [
        *results,
        Measurement(name="published until a worker is ordered", value=ordered_s * 1e3, unit="ms"),
        Measurement(name="the most workers", value=scaled[2], unit="", goal=f"<= {MOST}", ok=scaled[2] <= MOST),
        Measurement(name="requests without an answer", value=scaled[3], unit="", goal="0", ok=scaled[3] == 0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds: one round")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(measured(1 if arguments.quick else 5), arguments.json)


if __name__ == "__main__":
    main()
