"""What workers were running when they ended without a word is kept with the messages, for those that get them next."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.errors import OmnibusError
from functions.suspects import Suspects
from functions.watch import RunState
from warmpool.member import Member

log = logging.getLogger("omnibus.pool")


class Casualties:
    """Reads the records of the dead. Use as a context manager.

    Args:
        suspects: Where it is kept.
    """

    def __init__(self, suspects: Suspects) -> None:
        self._suspects = suspects
        self._noting: set[asyncio.Task[None]] = set()
        self._oom_kills = oom_kills()

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what is being kept."""
        if self._noting:
            await asyncio.wait(self._noting)

    def on_end(self, member: Member, status: int) -> None:
        """A worker has ended; see `SlotConfig.on_end`."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        if status == 0:
            return  # it has handed everything back
        # A kill from outside is nobody's fault that it was running; one for want of memory is.
        crashed = member.hung or (
            not member.leaving and (status not in (-signal.SIGKILL, -signal.SIGTERM) or self._oom_kills > before)
        )
        for key, state in member.record.runs():
            if state is not RunState.STUCK:  # which the worker itself has told of
                task = asyncio.get_running_loop().create_task(self._note(key, state is RunState.RUNNING, crashed))
                self._noting.add(task)
                task.add_done_callback(self._noting.discard)

    async def _note(self, key: str, running: bool, crashed: bool) -> None:
        try:
            await self._suspects.note(key, running=running, crashed=crashed)
        except OmnibusError as error:  # it comes again as if it had been tried and not answered
            log.warning("it is not kept that a worker ended over message %s: %s", key, error)


def oom_kills() -> int:
    """Processes of this host that the kernel has killed for want of memory so far; 0 where it does not tell.

    Source: Linux, Documentation/admin-guide/mm, `oom_kill` of /proc/vmstat.
    """
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
