"""How workers come to life: forked from a template where that is safe, started anew where it is not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from bus.errors import WorkerStartError
from warmpool.forker import Forker
from warmpool.process import NO_ROOM, Process, spawn

log = logging.getLogger("omnibus.pool")

WorkerCommand = Callable[[str, int, int], Sequence[str]]
"""The command of a worker of a group, given the numbers of its channel and of its flight record."""


class Starter(Protocol):
    """Starts workers."""

    async def start(self, group: str, channel: int, record: int, log_path: Path) -> Process:
        """A new worker, which waits for an order on its channel.

        Args:
            group: Which functions it serves.
            channel: Descriptor of its end of the channel.
            record: Descriptor of its flight record.
            log_path: File that its output is appended to.

        Raises:
            WorkerStartError: It cannot be started; (retryable) trying again helps, with a new channel.
        """

    async def renew(self) -> None:
        """From now on, start workers with the code that is installed now."""


class SpawnStarter:
    """Starts every worker anew.

    Args:
        command: Of a worker.
        environment: Of the workers.
    """

    def __init__(self, command: WorkerCommand, environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment

    async def start(self, group: str, channel: int, record: int, log_path: Path) -> Process:
        """See `Starter`."""
        command = self._command(group, channel, record)
        descriptors = [channel, record]
        try:
            return await spawn(command, environment=self._environment, log_path=str(log_path), descriptors=descriptors)
        except OSError as error:
            raise WorkerStartError(
                f"{' '.join(command[:3])} … cannot be started: {error}", retryable=error.errno in NO_ROOM
            ) from error

    async def renew(self) -> None:
        """See `Starter`; each one is started with what is installed then."""


class TemplateStarter:
    """Forks workers from a template. Use as a context manager.

    Where forks are not safe the template becomes the worker, and while the next one imports what it needs, workers are
    started anew.

    Args:
        forker: Of the template.
        spawning: For where it may not fork: a device whose context is not to be copied, a package that starts threads.
    """

    def __init__(self, forker: Forker, spawning: Starter) -> None:
        self.forker = forker
        self._spawning = spawning
        self._stack = AsyncExitStack()
        self._unsafe = ""

    async def __aenter__(self) -> Self:
        """Start the template; workers that are asked for meanwhile wait for it."""
        await self._stack.enter_async_context(self.forker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the template."""
        await self._stack.aclose()

    async def start(self, group: str, channel: int, record: int, log_path: Path) -> Process:
        """See `Starter`."""
        if self._unsafe and not self.forker.ready:
            return await self._spawning.start(group, channel, record, log_path)
        unsafe = (await self.forker.told()).get("unsafe")
        if unsafe and not self._unsafe:
            log.warning("workers are not forked: %s", unsafe)
            self._unsafe = str(unsafe)
        output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            return await self.forker.fork({"group": group}, [channel, output, record])
        finally:
            os.close(output)

    async def renew(self) -> None:
        """See `Starter`."""
        await self.forker.renew()
