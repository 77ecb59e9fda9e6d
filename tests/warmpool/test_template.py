"""Workers are forked from a template that holds nothing, outlive it, and share nothing that must be their own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from bus.contracts import Tier
from bus.errors import WorkerStartError
from tests.delivery.processes import ROOT, alive
from tests.runtime.engines.small_model import install, weight
from tests.warmpool.pools import facts, forked, running, until, waiting
from warmpool.adopted import reap_strays
from warmpool.forker import Forker

OWN = ("pid", "random", "numpy", "secret", "uuid", "temporary", "nuid")


async def test_the_template_of_real_workers_has_one_thread_and_no_socket_but_its_own(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMNIBUS_DATA": str(tmp_path)}
    command = [sys.executable, "-m", "infra.local.template"]
    async with Forker(lambda control: [*command, str(control)], environment, tmp_path / "template.log") as real:
        told = await real.told()
        assert told["unsafe"] == ""
        assert len(list(Path(f"/proc/{real.pid}/task").iterdir())) == 1
        log = str(tmp_path / "template.log")
        # One to the pool, and one to the worker that waits.
        await until(lambda: files_of(real.pid) == sorted(["/dev/null", log, log, "socket", "socket"]))


def files_of(pid: int) -> list[str]:
    """What a process has open, by path or kind."""
    return sorted(os.readlink(path).split(":")[0] for path in Path(f"/proc/{pid}/fd").iterdir())


async def test_a_worker_is_there_before_it_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        for number in (1, 2, 3):
            await until(lambda: len(waiting(pool)) == 1)
            (ahead,) = waiting(pool)
            pool.want("idle", {Tier.PRIMED: number})
            await pool.reach("idle")
            assert pool.pids[f"idle-{number - 1}"] == ahead
    assert forked() == []


async def test_where_the_one_that_waits_was_killed_another_one_is_forked(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        await until(lambda: len(waiting(pool)) == 1)
        (ahead,) = waiting(pool)
        os.kill(ahead, signal.SIGKILL)
        await until(lambda: reap_strays() == 1)
        pool.want("idle", {Tier.PRIMED: 1})
        (member,) = await pool.reach("idle")
        assert member.tier is Tier.PRIMED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_one_that_waits_ends_with_its_template(tmp_path: Path, number: signal.Signals) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        await until(lambda: len(waiting(pool)) == 1)
        (ahead,) = waiting(pool)
        os.kill(ahead, signal.SIGSTOP)  # it does not see that its template is gone
        os.kill(pool.starter.forker.pid, number)  # type: ignore[attr-defined]
        await pool.renew("its code is of yesterday")
        await until(lambda: not alive(ahead))
        pool.want("idle", {Tier.PRIMED: 1})
        await pool.reach("idle")
    assert forked() == []


async def test_what_must_be_its_own_differs_in_every_worker(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.PRIMED: 3})
        await pool.reach("idle")
        told = [facts(tmp_path, slot)[0] for slot in pool.pids]
        for name in OWN:
            assert len({one[name] for one in told}) == 3, name
        for one in told:
            assert one["parent"] == os.getpid()
            assert one["session"] == one["pid"]
            assert one["threads"] == 1


async def test_a_worker_has_its_channel_its_record_and_its_log_and_no_other_file(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.PRIMED: 2})
        await pool.reach("idle")
        log = str(tmp_path / "idle-1.log")
        assert facts(tmp_path, "idle-1")[0]["files"] == sorted(["/dev/null", "/memfd", log, log, "socket"])


async def test_sessions_that_are_made_in_workers_run_on_as_many_threads_as_they_are_told_to(tmp_path: Path) -> None:
    model = install(tmp_path / "models")
    async with running(tmp_path, variables={"NOOP_MODEL": str(model)}) as pool, asyncio.timeout(60):
        for count in (1, 2, 3):
            pool.want(f"session-{count}", {Tier.LOADED: 1})
        told = []
        for count in (1, 2, 3):
            await pool.reach(f"session-{count}")
            told.append(facts(tmp_path, f"session-{count}-0")[1])
    assert [one["threads"] for one in told] == [0, 1, 2]
    for one in told:
        np.testing.assert_allclose(one["answer"], [weight().sum(axis=0)], rtol=1e-4, atol=1e-4)


async def test_workers_outlive_a_template_that_is_killed_and_the_next_one_forks_as_well(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 2})
        await pool.reach("idle")
        pids = pool.pids
        template = pool.starter.forker.pid  # type: ignore[attr-defined]
        os.kill(template, signal.SIGKILL)
        await until(lambda: not alive(template))
        pool.want("idle", {Tier.LOADED: 4})
        await pool.reach("idle")
        assert pids.items() < pool.pids.items()
        assert all(alive(pid) for pid in pids.values())


async def test_a_template_that_is_killed_again_and_again_costs_no_worker(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        for count in range(1, 6):
            pool.want("idle", {Tier.LOADED: 4 * count})
            pid = pool.starter.forker.pid  # type: ignore[attr-defined]
            if pid:
                os.kill(pid, signal.SIGKILL)
        await pool.reach("idle")
        assert len(pool.pids) == 20
    assert forked() == []


_POOL = """
import asyncio, os, sys
from pathlib import Path
from bus.contracts import Tier
from tests.runtime.engines.small_model import install, weight
from tests.warmpool.pools import forked, running, until
async def main():
    async with running(Path(sys.argv[1])) as pool:
        pool.want("deaf", {Tier.LOADED: 3})
        await pool.reach("deaf")
        await until(lambda: len(forked()) == 4)  # one waits
        print(pool.starter.forker.pid, *forked(), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_workers_and_template_die_with_a_pool_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _POOL, str(tmp_path), env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in (await process.stdout.readline()).split()]
    assert len(pids) == 5
    assert all(alive(pid) for pid in pids)
    process.kill()
    await process.wait()
    await until(lambda: not any(alive(pid) for pid in pids))


async def test_a_template_with_threads_becomes_the_worker_and_another_one_waits(tmp_path: Path) -> None:
    async with running(tmp_path, variables={"NOOP_THREAD": "1"}) as pool, asyncio.timeout(60):
        forker = pool.starter.forker  # type: ignore[attr-defined]
        for number in (1, 2):
            await until(lambda: forker.ready)
            template = forker.pid
            pool.want("idle", {Tier.LOADED: number})
            await pool.reach("idle")
            assert pool.pids[f"idle-{number - 1}"] == template
        assert [one["parent"] for one in facts(tmp_path, "idle-0")] == [os.getpid()]
        os.kill(pool.pids["idle-0"], signal.SIGKILL)
        await until(lambda: pool.pids.get("idle-0", template) != template)
        await pool.reach("idle")
        pids = [forker.pid, *pool.pids.values()]
    assert not any(alive(pid) for pid in pids)


async def test_while_the_next_template_imports_workers_are_started_anew(tmp_path: Path) -> None:
    async with running(tmp_path, variables={"NOOP_THREAD": "1"}) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 1})
        await pool.reach("idle")
        pool.want("idle", {Tier.LOADED: 4})
        assert {member.tier for member in await pool.reach("idle")} == {Tier.LOADED}
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pool.pids.values()]
        assert any(b"tests.warmpool.noop\0idle\0" in command for command in commands)


async def test_a_template_that_may_not_fork_and_is_killed_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, variables={"NOOP_THREAD": "1"}) as pool, asyncio.timeout(60):
        forker = pool.starter.forker  # type: ignore[attr-defined]
        await until(lambda: forker.ready)
        first = forker.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: forker.ready and forker.pid != first)
        pool.want("idle", {Tier.LOADED: 1})
        await pool.reach("idle")
        assert list(pool.pids.values()) != [first]


async def test_a_template_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no module of that name'); raise SystemExit(1)"]
    async with Forker(lambda control: command, dict(os.environ), tmp_path / "template.log") as broken:
        with pytest.raises(WorkerStartError, match=r"(?s)template failed 3 times in a row.*no module of that name"):
            await broken.fork({"group": "idle"}, [])


async def test_a_hundred_workers_leave_no_process_and_no_file_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(100):
        pool.want("idle", {Tier.LOADED: 1})
        await pool.reach("idle")
        pool.want("idle", {})
        await until(lambda: not pool.members)
        template = pool.starter.forker.pid  # type: ignore[attr-defined]
        before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in ("self", template)]
        for _ in range(10):
            pool.want("idle", {Tier.LOADED: 10})
            await pool.reach("idle")
            pool.want("idle", {})
            await until(lambda: not pool.members)
        assert [len(os.listdir(f"/proc/{pid}/fd")) for pid in ("self", template)] == before
        assert forked() == []
    assert sum(len(facts(tmp_path, f"idle-{number}")) for number in range(10)) == 101
