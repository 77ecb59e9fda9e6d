"""The embedded stack: nats-server, workers and the gateway in one process tree."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bus.contracts import Lease, WorkerState
from bus.contracts.codec import digest
from bus.errors import StackConfigError, WorkerStartError
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.opened import Opened
from bus.tensors.shared_memory import SharedMemory
from functions.leases import read_leases
from infra.local.folder import DataFolder, StackInfo
from infra.local.host import CLOSING_S, HostPool
from infra.local.nats_server import NatsServer, free_port
from infra.settings import PREFIX, Settings
from warmpool.keeper import Keeper, KeeperConfig
from warmpool.pool import Pool

log = logging.getLogger("omnibus.stack")

_COMMAND = [sys.executable, "-m", "infra.cli.main"]
_PROBE_S = 0.05


class Stack(Opened):
    """Starts everything and stops it in order. Use as a context manager.

    Attributes:
        info: How to reach the stack.
        pool: Its workers.
        gateway: Its gateway.
        nats: Its bus.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.info: StackInfo
        self.pool: Pool
        self.gateway: Keeper
        self.nats: NatsServer
        self._bus: NatsBus
        self._least = 0

    async def wait_until_ready(self, timeout_s: float = 120.0) -> list[Lease]:
        """Wait until every worker serves that is always there; returns the leases of all that do.

        Raises:
            WorkerStartError: One failed, or they were not ready in time.
        """
        failed = asyncio.get_running_loop().create_task(self.pool.failed())
        try:
            async with asyncio.timeout(timeout_s):
                registry = await self._bus.bucket("workers")
                while not failed.done():
                    leases = [lease for lease in await read_leases(registry) if lease.state is WorkerState.READY]
                    if len(leases) >= self._least:
                        return leases
                    await asyncio.wait([failed], timeout=_PROBE_S)
            await failed
        except TimeoutError as error:
            raise WorkerStartError(
                f"the workers were not ready after {timeout_s:g} s; their logs are in {self._logs}"
            ) from error
        finally:
            failed.cancel()
        raise WorkerStartError("the pool stopped")

    async def run(self) -> None:
        """Return never; raise when a part of the stack cannot be kept alive.

        Raises:
            WorkerStartError: It failed again and again.
        """
        parts = (self.pool.failed(), self.gateway.failed(), self.nats.failed())
        kept = [asyncio.get_running_loop().create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(kept, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for task in kept:
                task.cancel()

    async def renew(self) -> None:
        """Put fresh workers, with the code that is installed and the files that are there now, in the place of all.

        Nothing is lost: each of them goes when its successor serves, and has finished what it had.
        """
        await self.pool.renew("it is told to be renewed")

    async def _open(self) -> None:
        """Start the bus, the workers and the gateway; workers may still be loading when this returns.

        Raises:
            StackConfigError: A folder, lock or port that cannot be used.
            WorkerStartError: A process that does not start.
        """
        settings = self._settings
        folder = self._stack.enter_context(DataFolder(settings.data))
        self._logs = folder.logs
        if settings.port == 0:  # any that is free
            self._settings = settings = settings.model_copy(update={"port": free_port()})
        check_port(settings.host, settings.port)
        self.nats = await self._stack.enter_async_context(NatsServer(folder.jetstream, folder.logs))
        self.info = StackInfo(
            pid=os.getpid(),
            gateway_url=f"http://{settings.host}:{settings.port}",
            nats_url=self.nats.url,
            nats_token=self.nats.token,
            store_url=settings.store,
            tensors=str(settings.tensors or _tensor_folder(folder.path)),
        )
        # What is in shared memory is a copy: gone with the stack, and with one that was killed.
        shared = SharedMemory(self.info.tensors, 1)
        shared.sweep()
        self._stack.callback(shared.sweep)
        environment = self._environment()
        await self._open_pool(environment)
        self.gateway = await self._keep({"gateway": [*_COMMAND, "gateway"]}, environment)
        await self._wait_for_gateway()
        folder.publish(self.info)

    async def _open_pool(self, environment: Mapping[str, str]) -> None:
        nats = NatsConfig(url=self.nats.url, token=self.nats.token, name="omnibus-stack")
        host = await self._stack.enter_async_context(HostPool(self._settings, nats, self._logs, environment))
        self.pool, self._bus, self._least = host.pool, host.bus, host.least

    async def _keep(self, commands: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> Keeper:
        grace_s = self._settings.grace_s + CLOSING_S
        config = KeeperConfig(commands=commands, environment=environment, logs=self._logs, grace_s=grace_s)
        return await self._stack.enter_async_context(Keeper(config))

    def _environment(self) -> dict[str, str]:
        own = {
            "NATS_URL": self.info.nats_url,
            "NATS_TOKEN": self.info.nats_token,
            "STORE_URL": self.info.store_url,
            "TENSORS": self.info.tensors,
            "HOST": self._settings.host,
            "PORT": str(self._settings.port),
            "DATA": str(self._settings.data),
        }
        return {**os.environ, **{PREFIX + name: value for name, value in own.items()}}

    async def _wait_for_gateway(self) -> None:
        failed = asyncio.get_running_loop().create_task(self.gateway.failed())
        try:
            while not failed.done():
                with socket.socket() as probe:
                    if probe.connect_ex((self._settings.host, self._settings.port)) == 0:
                        return
                await asyncio.wait([failed], timeout=_PROBE_S)
            failed.result()
        finally:
            failed.cancel()


def check_port(host: str, port: int) -> None:
    """Refuse a port that cannot be listened on.

    Raises:
        StackConfigError: Says whether it is in use or not allowed.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StackConfigError(
                f"port {port} on {host} cannot be used: {error.strerror}; "
                f"stop what listens there or choose another with --port or {PREFIX}PORT",
                port=port,
            ) from error


def _tensor_folder(data: Path) -> Path:
    shared = Path("/dev/shm")
    base = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return base / f"omnibus-{digest(str(data.absolute()).encode())[:12]}"
