"""Workers that leave while requests come without a pause: each request runs once, is answered, and none runs late."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.contracts import Result, ResultStatus, Tier, WorkerState
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import KeyValue
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.leases import read_leases
from functions.registry import registry
from tests.delivery import poison
from tests.delivery.host import Host, poison_workers
from tests.delivery.processes import alive, runs, until
from tests.delivery.stack import running

pytestmark = pytest.mark.timeout(120)

LEAST = 100
CLIENTS = 12


class Traffic:
    """Requests that come without a pause, until told to stop."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.over = False

    async def many(self, count: int) -> None:
        """Wait until so many more are answered."""
        goal = len(self.results) + count
        async with asyncio.timeout(60):
            while len(self.results) < goal:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def traffic(client: PipelineClient, pipeline: str, **inputs: object) -> AsyncIterator[Traffic]:
    """Clients of which each asks again as soon as it is answered; at the end all have their answers."""
    flow = Traffic()

    async def ask() -> None:
        while not flow.over:
            async with client.submit(pipeline, inputs, timeout_s=60) as request:
                flow.results.append(await request.result())

    tasks = [asyncio.ensure_future(ask()) for _ in range(CLIENTS)]
    try:
        yield flow
    finally:
        flow.over = True
        await asyncio.gather(*tasks)


def check(flow: Traffic, ran: list[tuple[str, int, int]]) -> None:
    """At least so many requests, of which each was run and answered once."""
    assert len(flow.results) >= LEAST
    assert {result.status for result in flow.results} == {ResultStatus.SUCCEEDED}
    times = Counter(request for request, _, _ in ran)
    assert times == dict.fromkeys((result.request for result in flow.results), 1)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """Three workers."""
    async with poison_workers(tmp_path, 3) as one:
        yield one


async def draining(bucket: KeyValue, pid: int) -> int:
    """Wait until a worker has told that it takes nothing new, or has left; what it had then."""
    while lease := next((one for one in await read_leases(bucket) if one.pid == pid), None):
        if lease.state is WorkerState.DRAINING:
            return lease.busy
        await asyncio.sleep(0.002)
    return 0


async def leaves_in_order(host: Host, leave: Callable[[], set[int]]) -> set[int]:
    """Have workers leave in the middle of traffic; what they have is finished, and nothing new taken."""
    leases = await host.client.bus.bucket("workers")
    async with traffic(host.client, "poison", do="answer") as flow:
        await flow.many(50)
        leaving = leave()
        had = sum(await asyncio.gather(*(draining(leases, pid) for pid in leaving)))
        begun = [run for run in host.runs if run[2] in leaving]
        await until(lambda: not any(alive(pid) for pid in leaving), "the end of those that leave")
        await flow.many(50)
    late = len([run for run in host.runs if run[2] in leaving]) - len(begun)
    assert late <= had  # what it had may not have begun
    assert {pid for _, _, pid in begun} == leaving
    check(flow, host.runs)
    return leaving


async def test_a_pool_that_is_made_smaller_loses_nothing_and_runs_nothing_late(host: Host) -> None:
    def shrink() -> set[int]:
        host.pool.want(poison.GROUP, {Tier.LOADED: 1})
        return {member.process.pid for member in host.pool.members if member.leaving and member.process is not None}

    assert len(await leaves_in_order(host, shrink)) == 2
    assert len(host.pool.pids) == 1


async def test_a_worker_that_gets_sigterm_finishes_what_it_has_and_another_one_takes_its_place(host: Host) -> None:
    def terminate() -> set[int]:
        os.kill(host.pool.pids["poison-0"], signal.SIGTERM)
        return {host.pool.pids["poison-0"]}

    (pid,) = await leaves_in_order(host, terminate)
    await host.pool.reach(poison.GROUP)
    assert pid not in host.pool.pids.values()
    assert len(host.pool.pids) == 3


async def test_a_hang_up_in_the_middle_of_traffic_renews_all_workers_and_loses_nothing(tmp_path: Path) -> None:
    import tests.delivery.functions  # noqa: F401 - registers the functions

    here = Path(__file__).parent
    variables = {"OMNIBUS_FUNCTIONS": "tests.delivery.functions", "OMNIBUS_PIPELINES": str(here)}
    variables |= {"CHAIN_FOLDER": str(tmp_path), "OMNIBUS_WORKERS": "chain=2"}
    async with running(tmp_path, **variables) as stack:
        await stack.ready()
        config = NatsConfig(url=stack.info.nats_url, token=stack.info.nats_token)
        async with (
            NatsBus(config) as bus,
            PipelineClient(bus, Pipelines.load(registry, [here])) as client,
            traffic(client, "chain", number=7) as flow,
        ):
            await flow.many(50)
            old = {pid for _, _, pid in runs(tmp_path, "one")}
            stack.process.send_signal(signal.SIGHUP)
            await until(lambda: not any(alive(pid) for pid in old), "the end of the old workers")
            await flow.many(50)
        for stage in ("one", "two", "three"):
            check(flow, runs(tmp_path, stage))
        assert {tuple(result.outputs["seen"]) for result in flow.results} == {("one", "two", "three")}
        new = {pid for _, _, pid in runs(tmp_path, "one")} - old
        assert len(old) == len(new) == 2


async def test_a_second_signal_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    variables = {"OMNIBUS_FUNCTIONS": "tests.delivery.functions", "OMNIBUS_PIPELINES": str(Path(__file__).parent)}
    variables |= {"CHAIN_FOLDER": str(tmp_path), "OMNIBUS_WORKERS": "chain=1", "OMNIBUS_GRACE_S": "600"}
    (tmp_path / "hold-two").touch()
    async with running(tmp_path, **variables) as stack:
        await stack.ready()
        await stack.http.post(
            f"{stack.info.gateway_url}/v1/pipelines/chain", json={"number": 7}, headers={"Prefer": "respond-async"}
        )
        await until(lambda: (tmp_path / "ran-two").exists(), "the second stage")
        children = stack.children()
        stack.process.terminate()
        await until(lambda: "stopping" in stack.output, "the stop")
        stack.process.terminate()
        await until(lambda: not any(alive(pid) for pid in [*children, stack.process.pid]), "the end of all processes")
        assert stack.process.wait() == 1
