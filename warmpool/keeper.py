"""Keeps processes alive that are no workers, such as the gateway."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.errors import WorkerStartError
from warmpool.backoff import Backoff
from warmpool.log_tail import log_tail
from warmpool.process import spawn, stop

log = logging.getLogger("omnibus.pool")


@dataclass(frozen=True, kw_only=True)
class KeeperConfig:
    """What is kept alive.

    Attributes:
        commands: What to run, by slot, such as `gateway`.
        environment: Of the processes.
        logs: Folder of their log files, one a slot.
        grace_s: How long a process may take to stop.
        start_attempts: One that fails this often in a row before it was ever stable fails the keeper.
    """

    commands: Mapping[str, Sequence[str]]
    environment: Mapping[str, str]
    logs: Path
    grace_s: float = 15.0
    start_attempts: int = 3


class Keeper:
    """Processes that are started again when they die. Use as a context manager.

    Args:
        config: Which ones.
        clock: Seconds, from anywhere.
    """

    def __init__(self, config: KeeperConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Start every process; they become ready by themselves."""
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(self._keep(slot), name=f"keep-{slot}") for slot in self._config.commands]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every process, all at the same time."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(stop(process, self._config.grace_s) for process in self._processes.values()))

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by slot, of those that run."""
        return {slot: process.pid for slot, process in self._processes.items() if process.returncode is None}

    async def failed(self) -> None:
        """Return never; raise when a process cannot be kept alive.

        Raises:
            WorkerStartError: It failed again and again; names its log file.
        """
        # Not gather: whoever stops waiting here must not stop the keepers.
        done, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_EXCEPTION)
        for keeper in done:
            keeper.result()

    async def _keep(self, slot: str) -> None:
        backoff = Backoff()
        log_path = self._config.logs / f"{slot}.log"
        while True:
            started_s = self._clock()
            process = await spawn(
                self._config.commands[slot], environment=self._config.environment, log_path=str(log_path)
            )
            self._processes[slot] = process
            status = await process.wait()
            delay_s = backoff.died(self._clock() - started_s)
            if status == 1 and backoff.hopeless(self._config.start_attempts):
                raise WorkerStartError(
                    f"{slot} failed {backoff.failures} times in a row; its log is {log_path}:\n{log_tail(log_path)}"
                )
            log.warning("%s ended with status %s; starting it again in %.1f s", slot, status, delay_s)
            await asyncio.sleep(delay_s)
