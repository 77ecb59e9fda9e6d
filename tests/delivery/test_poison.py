"""A message that crashes or hangs its workers is put aside, and costs its neighbours nothing but time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus import subjects
from bus.contracts import DeadLetter, ResultStatus, Tier, WorkerState
from bus.contracts.codec import decode
from functions.leases import read_leases
from tests.delivery import poison
from tests.delivery.host import Host, poison_workers
from tests.delivery.processes import alive, until


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """One loaded worker."""
    async with poison_workers(tmp_path) as one:
        yield one


async def letters(host: Host) -> list[DeadLetter]:
    return [decode(DeadLetter, data) for _, data in await host.client.bus.history(subjects.dead(">"))]


@pytest.mark.parametrize(("deed", "deaths"), [("abort", 2), ("exit", 2), ("kill", 4)])
async def test_a_message_that_crashes_its_workers_is_put_aside_and_its_neighbours_are_answered(
    host: Host, tmp_path: Path, deed: str, deaths: int
) -> None:
    (tmp_path / "hold").touch()
    neighbours = [host.start(do="hold once") for _ in range(3)]
    await until(lambda: len(host.runs) == 3, "the neighbours' start")
    result = await host.ask(do=deed)
    assert result.status is ResultStatus.FAILED
    assert result.error is not None
    assert result.error.code == "delivery_exhausted"
    assert len([run for run in host.runs if run[0] == result.request]) == deaths
    (tmp_path / "hold").unlink()
    for neighbour in await asyncio.gather(*neighbours):
        assert neighbour.status is ResultStatus.SUCCEEDED, neighbour.error
    (letter,) = await letters(host)
    assert (letter.event.request, letter.error.details["crashes"]) == (result.request, 2)
    assert (await host.ask(do="answer")).status is ResultStatus.SUCCEEDED


@pytest.mark.parametrize("deed", ["hang once", "hang all once"])
async def test_a_run_that_hangs_ends_its_worker_and_is_answered_by_the_next_one(host: Host, deed: str) -> None:
    first = host.pool.pids["poison-0"]
    result = await host.ask(do=deed)
    assert result.status is ResultStatus.SUCCEEDED, result.error
    assert [run[1] for run in host.runs] == [1, 2]
    assert host.runs[0][2] == first
    assert result.outputs["pid"] == host.runs[1][2] != first
    await until(lambda: not alive(first), "the end of the worker that hangs")


async def test_a_message_that_hangs_two_workers_is_put_aside(host: Host) -> None:
    result = await host.ask(do="hang")
    assert result.error is not None
    assert result.error.code == "delivery_exhausted"
    assert len({pid for _, _, pid in host.runs}) == 2
    assert (await host.ask(do="answer")).status is ResultStatus.SUCCEEDED


async def test_a_worker_that_is_stopped_is_killed_and_its_message_answered_by_another_one(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "hold").touch()
    waiting = host.start(do="hold once")
    await until(lambda: len(host.runs) == 1, "the run")
    ((_, _, pid),) = host.runs
    os.kill(pid, signal.SIGSTOP)
    assert (await waiting).status is ResultStatus.SUCCEEDED
    await until(lambda: not alive(pid), "the end of the worker that was stopped")


async def test_a_pool_that_is_closed_finishes_what_its_workers_have(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with poison_workers(tmp_path, 2) as host:
        waiting = [host.start(do="hold") for _ in range(6)]
        await until(lambda: len(host.runs) == 6, "the runs")
        closing = asyncio.ensure_future(host.pool.__aexit__(None, None, None))
        registry = await host.client.bus.bucket("workers")
        while any(lease.state is WorkerState.READY for lease in await read_leases(registry)):
            await asyncio.sleep(0.01)
        assert not closing.done()
        (tmp_path / "hold").unlink()
        assert [result.status for result in await asyncio.gather(*waiting)] == [ResultStatus.SUCCEEDED] * 6
        await closing
        assert host.pool.pids == {}
        assert await read_leases(registry) == []
    assert [attempt for _, attempt, _ in host.runs] == [1] * 6


async def test_a_group_that_is_scaled_to_zero_finishes_what_it_has_and_takes_nothing_new(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "hold").touch()
    waiting = host.start(do="hold")
    await until(lambda: len(host.runs) == 1, "the run")
    host.pool.want(poison.GROUP, {})
    registry = await host.client.bus.bucket("workers")
    while any(lease.state is WorkerState.READY for lease in await read_leases(registry)):
        await asyncio.sleep(0.01)
    late = host.start(do="answer")
    (tmp_path / "hold").unlink()
    assert (await waiting).status is ResultStatus.SUCCEEDED
    while host.pool.members:
        await asyncio.sleep(0.01)
    assert len(host.runs) == 1
    host.pool.want(poison.GROUP, {Tier.LOADED: 1})
    assert (await late).status is ResultStatus.SUCCEEDED
    assert [attempt for _, attempt, _ in host.runs] == [1, 1]
