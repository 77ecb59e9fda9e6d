"""Pools of workers that do next to nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.delivery.processes import ROOT
from warmpool.adopted import COMM_PREFIX, waiting_name
from warmpool.forker import Forker
from warmpool.pool import Pool
from warmpool.slot import SlotConfig
from warmpool.starter import SpawnStarter, TemplateStarter
from warmpool.upkeep import Upkeep, UpkeepConfig

_MODULE = [sys.executable, "-m", "tests.warmpool.noop"]


def forker(folder: Path, **variables: str) -> Forker:
    """A template of no-op workers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return Forker(lambda control: [*_MODULE, str(control)], environment, folder / "template.log")


def starter(folder: Path, **variables: str) -> TemplateStarter:
    """What starts no-op workers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    spawning = SpawnStarter(lambda group, channel, record: [*_MODULE, group, str(channel), str(record)], environment)
    return TemplateStarter(forker(folder, **variables), spawning)


@asynccontextmanager
async def running(folder: Path, *, variables: dict[str, str] | None = None, **upkeep: Any) -> AsyncIterator[Pool]:
    """A pool of no-op workers."""
    config = SlotConfig(logs=folder, grace_s=1.0)
    async with (
        starter(folder, **(variables or {})) as starting,
        Pool(starting, config, Upkeep(UpkeepConfig(**upkeep))) as pool,
    ):
        yield pool


def facts(folder: Path, slot: str) -> list[dict[str, Any]]:
    """What the workers of a slot have told of themselves, one after the other."""
    path = folder / f"{slot}.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def forked() -> list[int]:
    """Workers that this process has adopted and not yet seen end."""
    pids = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith(COMM_PREFIX)]


def waiting(pool: Pool) -> list[int]:
    """The worker that the pool's template has forked and told nothing."""
    template = pool.starter.forker.pid  # type: ignore[attr-defined]
    return [pid for pid in forked() if Path(f"/proc/{pid}/comm").read_text().strip() == waiting_name(template)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)
