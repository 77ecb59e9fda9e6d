"""What the pool is for: workers killed in the middle of loading and of leaving, leaks, and what many of them leave."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bus.contracts import ResultStatus, Tier, WorkerState
from functions.leases import read_leases
from functions.running import outputs_of
from tests.delivery import parted, poison
from tests.delivery.host import Host, hosting
from tests.delivery.processes import alive, until
from tests.delivery.test_draining import traffic
from tests.runtime.engines.small_model import install
from warmpool.upkeep import UpkeepConfig

pytestmark = pytest.mark.timeout(120)

CYCLES, AT_ONCE = 12, 5


def poisonous(folder: Path) -> dict[str, Any]:
    return {
        "functions": "tests.delivery.poison", "pipelines": Path(poison.__file__).parent, "POISON_FOLDER": str(folder)
    }  # fmt: skip


async def lease_states(host: Host) -> dict[int, WorkerState]:
    """State by process."""
    leases = await read_leases(await host.client.bus.bucket("workers"))
    return {lease.pid: lease.state for lease in leases}


async def test_a_worker_killed_while_it_loads_is_replaced_and_what_waits_for_it_is_answered(tmp_path: Path) -> None:
    install(tmp_path / "models", seed=1)
    (tmp_path / "hold-setup").touch()
    folder = Path(parted.__file__).parent
    variables = {"OMNIBUS_MODELS": str(tmp_path / "models"), "PARTED_FOLDER": str(tmp_path)}
    async with hosting(tmp_path, functions="tests.delivery.parted", pipelines=folder, **variables) as host:
        await host.client.bus.ensure_function("parted.here")
        async with host.client.submit("parted-here", {"value": 0.5}, timeout_s=60) as request:
            host.pool.want(parted.GROUP, {Tier.LOADED: 1})
            await until(lambda: (tmp_path / "loading").exists(), "the set-up")
            pid = int((tmp_path / "loading").read_text())
            assert await lease_states(host) == {pid: WorkerState.STARTING}
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not alive(pid), "the end of the worker")
            (tmp_path / "hold-setup").unlink()
            assert outputs_of(await request.result()).keys() == {"value"}
        (member,) = await host.pool.reach(parted.GROUP)
        assert member.process is not None
        assert member.process.pid != pid


async def test_a_worker_killed_while_it_drains_loses_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path, **poisonous(tmp_path)) as host:
        host.pool.want(poison.GROUP, {Tier.LOADED: 1})
        await host.pool.reach(poison.GROUP)
        (tmp_path / "hold").touch()
        waiting = [host.start(do="hold") for _ in range(5)]
        await until(lambda: len(host.runs) == 5, "the runs")
        ((pid, _),) = (await lease_states(host)).items()
        host.pool.want(poison.GROUP, {})
        while await lease_states(host) != {pid: WorkerState.DRAINING}:
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not alive(pid), "the end of the worker")
        (tmp_path / "hold").unlink()
        host.pool.want(poison.GROUP, {Tier.LOADED: 1})
        assert {result.status for result in await asyncio.gather(*waiting)} == {ResultStatus.SUCCEEDED}
        assert sorted(attempt for _, attempt, _ in host.runs) == [1] * 5 + [2] * 5


async def test_a_worker_that_leaks_memory_is_replaced_in_the_middle_of_traffic_and_loses_nothing(
    tmp_path: Path,
) -> None:
    upkeep = UpkeepConfig(max_growth_nbytes=48 << 20)
    async with hosting(tmp_path, upkeep, **poisonous(tmp_path)) as host:
        host.pool.want(poison.GROUP, {Tier.LOADED: 1})
        (leaking,) = await host.pool.reach(poison.GROUP)
        assert leaking.process is not None
        async with traffic(host.client, "poison", do="answer") as flow:
            await flow.many(120)  # what grows before is no leak
            before = leaking.vitals.unique_nbytes
            await until(lambda: leaking.vitals.unique_nbytes not in (0, before), "its memory to be told")
            for _ in range(10):
                assert (await host.ask(do="leak")).status is ResultStatus.SUCCEEDED
            await until(lambda: not leaking.alive, "the end of the worker that leaks")
            await flow.many(20)
        assert {result.status for result in flow.results} == {ResultStatus.SUCCEEDED}
        assert set(Counter(request for request, _, _ in host.runs).values()) == {1}
        assert len(host.pool.pids) == 1
        assert host.pool.members[0].vitals.unique_nbytes < before + (48 << 20)


async def test_sixty_workers_that_serve_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    async with hosting(tmp_path, **poisonous(tmp_path), OMNIBUS_TENSORS=str(tmp_path / "tensors")) as host:

        async def cycle(count: int) -> None:
            for _ in range(count):
                host.pool.want(poison.GROUP, {Tier.LOADED: AT_ONCE})
                members = await host.pool.reach(poison.GROUP)
                pids.update(member.process.pid for member in members if member.process is not None)
                assert (await host.ask(do="answer")).status is ResultStatus.SUCCEEDED
                host.pool.want(poison.GROUP, {})
                while host.pool.members:
                    await asyncio.sleep(0.002)

        pids: set[int] = set()
        await cycle(2)  # what is opened once
        before = await _left(host)
        await cycle(CYCLES)
        assert await _left(host) == before
        assert len(pids) == (2 + CYCLES) * AT_ONCE
        assert not any(alive(pid) for pid in pids)
        assert before["leases"] == 0


async def _left(host: Host) -> dict[str, object]:
    """What is there that a leak would add to."""
    forker = host.pool.starter.forker  # type: ignore[attr-defined]
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {
        "processes": sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")),
        "descriptors": len(files),
        "records": sum(file.startswith("/memfd:") for file in files),
        "descriptors of the template": len(os.listdir(f"/proc/{forker.pid}/fd")),
        "shared memory": sorted(str(path) for path in (host.folder / "tensors").rglob("*")),
        "leases": len(await lease_states(host)),
    }
