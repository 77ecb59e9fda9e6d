"""Processes are kept alive, and told of when they cannot be."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.errors import WorkerStartError
from warmpool.keeper import Keeper, KeeperConfig

_IDLE = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(600)"
_BREAKS = "import sys, pathlib, time; seen = pathlib.Path('seen')\n" + (
    "if seen.exists(): print('no model here'); sys.exit(1)\nseen.touch(); print('serves', flush=True); time.sleep(600)"
)
_BROKEN = "import sys; print('no model here'); sys.exit(1)"


def config(folder: Path, code: str, **workers: int) -> KeeperConfig:
    commands = {
        f"{name}-{number}": [sys.executable, "-c", code, name]
        for name, count in workers.items()
        for number in range(count)
    }
    return KeeperConfig(commands=commands, environment=dict(os.environ), logs=folder, grace_s=5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def lines(folder: Path, slot: str) -> list[str]:
    path = folder / f"{slot}.log"
    return path.read_text().splitlines() if path.exists() else []


async def test_a_process_that_dies_is_started_again_and_all_are_stopped_at_the_end(tmp_path: Path) -> None:
    async with Keeper(config(tmp_path, _IDLE, media=1, speech=2)) as keeper:
        await until(lambda: len(keeper.pids) == 3)
        assert sorted(keeper.pids) == ["media-0", "speech-0", "speech-1"]
        await until(lambda: lines(tmp_path, "media-0") == ["['media']"])
        first = keeper.pids["media-0"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: keeper.pids.get("media-0", first) != first)
        await until(lambda: len(lines(tmp_path, "media-0")) == 2)
        pids = list(keeper.pids.values())
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_process_that_never_starts_fails_the_keeper_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with Keeper(config(tmp_path, _BROKEN, generate=1)) as keeper:
        with pytest.raises(WorkerStartError, match=r"(?s)generate-0 failed 3 times in a row.*no model here"):
            await keeper.failed()


async def test_a_process_that_is_killed_again_and_again_is_still_started_again(tmp_path: Path) -> None:
    async with Keeper(config(tmp_path, _IDLE, media=1)) as keeper:
        failed = asyncio.ensure_future(keeper.failed())
        for number in range(4):
            await until(lambda number=number: len(lines(tmp_path, "media-0")) == number + 1)  # type: ignore[misc]
            os.kill(keeper.pids["media-0"], signal.SIGKILL)
        await until(lambda: len(lines(tmp_path, "media-0")) == 5)
        assert not failed.done()
        failed.cancel()


async def test_a_process_that_was_stable_and_breaks_takes_nobody_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmpool.backoff.LONGEST_DELAY_S", 0.01)
    now_s = 0.0
    code = _BREAKS.replace("'seen'", repr(str(tmp_path / "seen")))
    async with Keeper(config(tmp_path, code, encode=1), clock=lambda: now_s) as keeper:
        failed = asyncio.ensure_future(keeper.failed())
        await until(lambda: lines(tmp_path, "encode-0") == ["serves"])
        now_s = 60.0
        os.kill(keeper.pids["encode-0"], signal.SIGKILL)
        await until(lambda: lines(tmp_path, "encode-0").count("no model here") > 4 or failed.done())
        assert not failed.done()
        failed.cancel()
