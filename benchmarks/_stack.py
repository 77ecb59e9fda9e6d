"""An embedded stack of its own for a benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _report import ROOT

from infra.local.folder import StackInfo, find_stack
from infra.local.nats_server import free_port


def processes(data: Path) -> list[int]:
    """Process ids of the stack whose data are in the folder."""
    mine = f"OMNIBUS_DATA={data}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mine in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@contextmanager
def stack(folder: Path, *arguments: str, **variables: str) -> Iterator[StackInfo]:
    """A stack that is ready."""
    log, data = folder / "up.log", folder / "data"
    environment = {**os.environ, "OMNIBUS_DATA": str(data), "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "infra.cli.main", "up", "--port", str(free_port()), *arguments]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        while "workers ready" not in log.read_text():
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        info = find_stack(data)
        assert info is not None
        yield info
    finally:
        process.terminate()
        process.wait()
