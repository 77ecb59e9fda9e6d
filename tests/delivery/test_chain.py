"""Nothing is lost and nothing is seen twice, whoever is killed: real server, real workers, kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bus import subjects
from bus.contracts import Lane, Result, ResultStatus, WorkerState
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.leases import read_leases
from functions.registry import registry
from functions.running import outputs_of
from infra.local.nats_server import NatsServer
from tests.delivery.processes import omnibus, runs, until

HERE = Path(__file__).parent
STAGES = ("one", "two", "three")
ANSWER = {"number": 10, "seen": ["one", "two", "three"]}


class Chain:
    """A server, workers of the chain and a client."""

    def __init__(self, folder: Path, server: NatsServer, client: PipelineClient, stack: ExitStack) -> None:
        self.folder = folder
        self.server = server
        self.client = client
        self.workers: list[subprocess.Popen[bytes]] = []
        self._stack = stack

    async def start_worker(self) -> subprocess.Popen[bytes]:
        before = await self.ready()
        process = self._stack.enter_context(
            omnibus(
                "worker", "--group", "chain", log=self.folder / f"worker-{len(self.workers)}.log",
                OMNIBUS_NATS_URL=self.server.url, OMNIBUS_NATS_TOKEN=self.server.token, OMNIBUS_ACK_WAIT_S="1",
                OMNIBUS_DATA=str(self.folder / "data"), OMNIBUS_FUNCTIONS="tests.delivery.functions",
                OMNIBUS_PIPELINES=str(HERE), CHAIN_FOLDER=str(self.folder),
            )
        )  # fmt: skip
        self.workers.append(process)
        while process.pid not in await self.ready() - before:
            assert process.poll() is None, (self.folder / f"worker-{len(self.workers) - 1}.log").read_text()
            await asyncio.sleep(0.02)
        return process

    async def ready(self) -> set[int]:
        leases = await read_leases(await self.client.bus.bucket("workers"))
        return {lease.pid for lease in leases if lease.state is WorkerState.READY}

    def hold(self, stage: str) -> None:
        (self.folder / f"hold-{stage}").touch()

    def release(self, stage: str) -> None:
        (self.folder / f"hold-{stage}").unlink()

    async def started(self, stage: str, count: int = 1) -> list[tuple[str, int, int]]:
        await until(lambda: len(runs(self.folder, stage)) >= count, f"{count} runs of {stage}")
        return runs(self.folder, stage)


@pytest.fixture
async def chain(tmp_path: Path) -> AsyncIterator[Chain]:
    import tests.delivery.functions  # noqa: F401 - registers the functions

    (tmp_path / "nats").mkdir()
    with ExitStack() as stack:
        async with (
            NatsServer(tmp_path / "nats", tmp_path) as server,
            NatsBus(NatsConfig(url=server.url, token=server.token, ack_wait_s=1)) as bus,
        ):
            await bus.setup()
            for stage in STAGES:
                await bus.ensure_function(f"chain.{stage}")
            await bus.ensure_function(subjects.START_FUNCTION)
            async with PipelineClient(bus, Pipelines.load(registry, [HERE])) as client:
                yield Chain(tmp_path, server, client, stack)


async def answer(chain: Chain, **fields: Any) -> dict[str, Any]:
    async with chain.client.submit("chain", {"number": 7}, **fields) as running:
        return await running.outputs()


async def eventually(chain: Chain, request: str) -> Result:
    while (result := await chain.client.result(request)) is None:
        await asyncio.sleep(0.02)
    return result


@pytest.mark.parametrize("stage", STAGES)
async def test_a_worker_killed_in_the_middle_of_a_stage_loses_nothing(chain: Chain, stage: str):
    first = await chain.start_worker()
    chain.hold(stage)
    waiting = asyncio.ensure_future(answer(chain))
    ((_, _, pid),) = await chain.started(stage)
    assert pid == first.pid
    os.kill(pid, signal.SIGKILL)
    first.wait()
    chain.release(stage)
    await chain.start_worker()
    assert await waiting == ANSWER
    assert [attempt for _, attempt, _ in runs(chain.folder, stage)] == [1, 2]
    for other in set(STAGES) - {stage}:
        assert len(runs(chain.folder, other)) == 1


async def test_another_worker_takes_over_from_one_that_was_killed(chain: Chain):
    await chain.start_worker()
    await chain.start_worker()
    chain.hold("two")
    waiting = asyncio.ensure_future(answer(chain))
    ((_, _, pid),) = await chain.started("two")
    os.kill(pid, signal.SIGKILL)
    chain.release("two")
    assert await waiting == ANSWER
    assert {run[2] for run in runs(chain.folder, "two")} == {worker.pid for worker in chain.workers}


async def test_a_server_killed_in_the_middle_loses_nothing(chain: Chain):
    await chain.start_worker()
    chain.hold("two")
    waiting = [asyncio.ensure_future(answer(chain)) for _ in range(10)]
    await chain.started("two", 10)
    os.kill(chain.server.pid, signal.SIGKILL)
    chain.release("two")
    assert await asyncio.gather(*waiting) == [ANSWER] * 10
    assert await answer(chain) == ANSWER


async def test_requests_queued_while_nobody_serves_are_answered_later_once_each(chain: Chain):
    worker = await chain.start_worker()
    chain.hold("one")
    requests = [await chain.client.enqueue("chain", {"number": 7}, request=f"queued-{number}") for number in range(50)]
    await chain.started("one", 50)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    os.kill(chain.server.pid, signal.SIGKILL)
    chain.release("one")
    await chain.start_worker()
    results = await asyncio.gather(*(eventually(chain, request) for request in requests))
    assert all(outputs_of(result) == ANSWER for result in results)
    assert len(await chain.client.bus.history("result.*")) == 50
    for stage in ("two", "three"):
        assert sorted({request for request, _, _ in runs(chain.folder, stage)}) == sorted(requests)
    assert all(counts == (0, 0) for counts in (await chain.client.bus.backlog("chain.one")).values())


async def test_a_worker_that_is_told_to_stop_finishes_what_it_has_and_takes_nothing_new(chain: Chain):
    worker = await chain.start_worker()
    chain.hold("one")
    waiting = asyncio.ensure_future(answer(chain))
    await chain.started("one")
    worker.send_signal(signal.SIGTERM)
    while worker.pid in await chain.ready():
        await asyncio.sleep(0.01)
    late = asyncio.ensure_future(answer(chain))
    chain.release("one")
    await until(lambda: worker.poll() is not None, "the worker's end")
    assert worker.returncode == 0
    assert len(runs(chain.folder, "one")) == 1
    await chain.start_worker()
    assert await waiting == ANSWER
    assert await late == ANSWER
    assert [attempt for _, attempt, _ in runs(chain.folder, "one")] == [1, 1]


async def test_a_second_signal_ends_a_worker_at_once(chain: Chain):
    worker = await chain.start_worker()
    chain.hold("one")
    waiting = asyncio.ensure_future(answer(chain))
    await chain.started("one")
    worker.send_signal(signal.SIGTERM)
    while worker.pid in await chain.ready():
        await asyncio.sleep(0.01)
    worker.send_signal(signal.SIGTERM)
    await until(lambda: worker.poll() is not None, "the worker's end")
    chain.release("one")
    await chain.start_worker()
    assert await waiting == ANSWER


async def test_a_request_that_is_cancelled_while_it_runs_ends_everywhere(chain: Chain):
    await chain.start_worker()
    chain.hold("two")
    async with chain.client.submit("chain", {"number": 7}) as running:
        await chain.started("two")
        await chain.client.cancel(running.id)
        result = await running.result()
    assert result.status is ResultStatus.CANCELLED
    assert runs(chain.folder, "three") == []


async def test_batch_work_does_not_hold_up_interactive_work(chain: Chain):
    await chain.start_worker()
    chain.hold("one")
    batch = [asyncio.ensure_future(answer(chain, lane=Lane.BATCH)) for _ in range(200)]
    await chain.started("one", 30)
    urgent = asyncio.ensure_future(answer(chain, request="urgent"))
    await until(lambda: any(run[0] == "urgent" for run in runs(chain.folder, "one")), "the urgent request's start")
    assert len(runs(chain.folder, "one")) < 200
    chain.release("one")
    assert await urgent == ANSWER
    assert await asyncio.gather(*batch) == [ANSWER] * 200
