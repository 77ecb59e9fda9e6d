"""A fixed pool: keeps the processes of a deployment alive."""

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
from warmpool.process import spawn, stop

log = logging.getLogger("omnibus.pool")

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 10.0
_MOST_DOUBLINGS = 16
_STABLE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """What the pool keeps alive.

    Attributes:
        commands: What to run, by slot, such as `media-0`.
        environment: Of the processes.
        logs: Folder of their log files, one a slot.
        grace_s: How long a process may take to stop.
        start_attempts: One that fails this often in a row before it was ever stable fails the pool. One that was stable
            is started again for ever: what it lacks now may come back, and the others serve meanwhile.
    """

    commands: Mapping[str, Sequence[str]]
    environment: Mapping[str, str]
    logs: Path
    grace_s: float = 15.0
    start_attempts: int = 3


class Pool:
    """Processes that are started again when they die. Use as a context manager.

    Args:
        config: Which ones.
        clock: Seconds, from anywhere.
    """

    def __init__(self, config: PoolConfig, clock: Callable[[], float] = time.monotonic) -> None:
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
        """Process ids by worker slot, such as `media-0`."""
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
        failures, ever_stable = 0, False
        log_path = self._config.logs / f"{slot}.log"
        while True:
            started_s = self._clock()
            process = await spawn(
                self._config.commands[slot], environment=self._config.environment, log_path=str(log_path)
            )
            self._processes[slot] = process
            status = await process.wait()
            stable = self._clock() - started_s > _STABLE_S
            failures, ever_stable = 1 if stable else failures + 1, ever_stable or stable
            if failures >= self._config.start_attempts and status == 1 and not ever_stable:
                raise WorkerStartError(
                    f"{slot} failed {failures} times in a row; its log is {log_path}:\n{log_tail(log_path)}"
                )
            delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** min(failures - 1, _MOST_DOUBLINGS))
            log.warning("%s ended with status %s; starting it again in %.1f s", slot, status, delay_s)
            await asyncio.sleep(delay_s)


def worker_commands(command: Sequence[str], workers: Mapping[str, int]) -> dict[str, list[str]]:
    """Commands by slot for so many workers of each group; `--group NAME` is added to the command."""
    return {
        f"{group}-{number}": [*command, "--group", group] for group, count in workers.items() for number in range(count)
    }


def log_tail(path: Path, lines: int = 5) -> str:
    """The last lines of a process's log; empty when there is none."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.strip().splitlines()[-lines:])
