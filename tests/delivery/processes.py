"""The real processes of a deployment, started and killed by tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def omnibus(*arguments: str, log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """An `omnibus` command as a process of its own; killed at the end if it is still there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMNIBUS_")}
    if "OMNIBUS_MODELS" in os.environ:
        environment["OMNIBUS_MODELS"] = os.environ["OMNIBUS_MODELS"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment |= {"PYTHONPATH": path, **variables}
    with open(log, "ab") as output:
        command = [sys.executable, "-m", "infra.cli.main", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(0.005)


def runs(folder: Path, stage: str) -> list[tuple[str, int, int]]:
    """Request, attempt and process id of every run of a stage of the chain."""
    log = folder / f"ran-{stage}"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(request, int(attempt), int(pid)) for request, attempt, pid in (line.split() for line in lines)]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
