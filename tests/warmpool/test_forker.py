"""A template that hangs, dies or has no room costs no worker and no pool."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bus.contracts import Tier
from bus.errors import WorkerStartError
from tests.delivery.processes import alive
from tests.warmpool.pools import forked, running, until, waiting
from warmpool.starter import SpawnStarter


async def test_a_template_that_hangs_is_replaced_when_it_is_asked_for_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmpool.forker._ANSWER_S", 0.5)
    async with running(tmp_path) as pool, asyncio.timeout(60):
        forker = pool.starter.forker  # type: ignore[attr-defined]
        await until(lambda: forker.ready)
        hanging = forker.pid
        os.kill(hanging, signal.SIGSTOP)
        pool.want("idle", {Tier.LOADED: 2})
        await pool.reach("idle")
        assert not alive(hanging)
        assert forker.pid != hanging
    assert forked() == []


@contextmanager
def no_more_files(pid: int) -> Iterator[None]:
    """A process cannot open another file meanwhile."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_template_that_cannot_fork_for_now_forks_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        forker = pool.starter.forker  # type: ignore[attr-defined]
        await until(lambda: len(waiting(pool)) == 1)
        with no_more_files(forker.pid):
            pool.want("idle", {Tier.LOADED: 2})
            await until(lambda: sum("cannot fork" in line for line in caplog.messages) > 4)  # more than it is given
        template = forker.pid
        assert len(await pool.reach("idle")) == 2
        assert forker.pid == template
    assert forked() == []


async def test_where_no_template_can_be_started_for_now_one_is_started_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        forker = pool.starter.forker  # type: ignore[attr-defined]
        await until(lambda: forker.ready)
        with no_more_files(os.getpid()):
            os.kill(forker.pid, signal.SIGKILL)
            await until(lambda: sum("cannot be started" in line for line in caplog.messages) > 4)
        pool.want("idle", {Tier.LOADED: 2})
        assert len(await pool.reach("idle")) == 2
    assert forked() == []


async def test_a_worker_that_has_not_read_what_it_is_to_be_outlives_its_template_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        await until(lambda: len(waiting(pool)) == 1)
        (ahead,) = waiting(pool)
        os.kill(ahead, signal.SIGSTOP)
        pool.want("idle", {Tier.LOADED: 1})
        await until(lambda: "idle-0" in pool.pids)
        template = pool.starter.forker.pid  # type: ignore[attr-defined]
        await pool.starter.renew()
        await until(lambda: pool.starter.forker.pid != template)  # type: ignore[attr-defined]
        os.kill(ahead, signal.SIGCONT)
        await pool.reach("idle")
        assert pool.pids == {"idle-0": ahead}
    assert forked() == []


async def test_a_worker_that_cannot_be_started_anew_for_now_may_be_later(tmp_path: Path) -> None:
    starter = SpawnStarter(lambda *told: [sys.executable, "-c", "pass"], dict(os.environ))
    with no_more_files(os.getpid()), pytest.raises(WorkerStartError, match="Too many open files") as caught:
        await starter.start("idle", 1, 2, tmp_path / "idle.log")
    assert caught.value.retryable
