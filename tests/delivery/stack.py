"""An embedded stack as a process of its own, and what tests do with it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from infra.local.folder import StackInfo, find_stack
from infra.local.nats_server import free_port
from tests.delivery.processes import alive, omnibus, until


class Stack:
    """An `omnibus up` process."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.process = process
        self.http = httpx.AsyncClient(timeout=120)

    @property
    def info(self) -> StackInfo:
        info = find_stack(self.folder / "data")
        assert info is not None, self.output
        return info

    @property
    def output(self) -> str:
        return (self.folder / "up.log").read_text()

    async def ready(self) -> None:
        def told() -> bool:
            assert self.process.poll() is None, self.output
            return "workers ready" in self.output

        await until(told, "the stack")

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        response = await self.http.post(self.info.gateway_url + path, **fields)
        assert response.status_code == 200, response.text
        return response

    def gateway_pid(self) -> int:
        """Of the gateway's process."""
        for pid in self.children():
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2:-1] == [b"gateway"]:
                return pid
        raise AssertionError("no gateway runs")

    def children(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"OMNIBUS_DATA={self.folder / 'data'}".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return [pid for pid in found if pid != self.process.pid and alive(pid)]


@asynccontextmanager
async def running(folder: Path, **variables: str) -> AsyncIterator[Stack]:
    """A stack in the folder; started again in the same folder it goes on where it was."""
    (folder / "up.log").unlink(missing_ok=True)
    variables = {"OMNIBUS_DATA": str(folder / "data"), "OMNIBUS_ACK_WAIT_S": "1", **variables}
    with omnibus("up", "--port", str(free_port()), log=folder / "up.log", **variables) as process:
        stack = Stack(folder, process)
        async with stack.http:
            yield stack
