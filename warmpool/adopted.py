"""Processes that somebody else has forked and this process has adopted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

COMM_PREFIX = "omnibus-"
"""How the names of forked workers begin, so that their parent knows its adopted children from all others."""


def waiting_name(template_pid: int) -> str:
    """How a worker is called that waits for what it is to be, in `ps -o comm`: by the template that it is of."""
    return f"{COMM_PREFIX}{template_pid}"


class AdoptedProcess:
    """A forked worker whose parent has ended; this process is a subreaper and its parent now.

    Attributes:
        pid: Its process id.
        returncode: Exit status, or minus the number of the signal that killed it; None while it lives.
    """

    def __init__(self, pid: int) -> None:
        """Watch a process; until its end is seen its id cannot be taken by another one.

        Args:
            pid: Of a child of this process.
        """
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._on_end)

    async def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it, also while it is stopped."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def _on_end(self) -> None:
        try:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            ended, status = self.pid, 0xFF00  # somebody else has waited for it: how it ended is lost
        if ended:
            self.returncode = os.waitstatus_to_exitcode(status)
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._ended.set()


def reap_strays() -> int:
    """Clear away forked workers that ended before anybody knew of them; returns how many.

    That is how those end whose template was killed between forking them and telling of them.
    """
    reaped = 0
    for pid in _children():
        name, state = _name_and_state(pid)
        if state == "Z" and name.startswith(COMM_PREFIX):
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
                reaped += 1
    return reaped


async def end_waiting(template_pid: int, handed: Collection[int]) -> None:
    """Clear away the workers of a template that is gone that nobody has told what to be.

    Args:
        template_pid: Of the template.
        handed: Those that somebody has told, and that may not have read it yet.
    """
    for pid in _children():
        if pid not in handed and _name_and_state(pid)[0] == waiting_name(template_pid):
            with suppress(OSError):  # it has been waited for
                process = AdoptedProcess(pid)
                process.kill()
                await process.wait()


def _name_and_state(pid: int) -> tuple[str, str]:
    """A process's name and the letter of its state; empty when it is gone.

    Source: proc(5), /proc/pid/stat.
    """
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        return name, rest.split()[0]
    except (OSError, ValueError, IndexError):
        return "", ""


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += [int(pid) for pid in task.read_text(encoding="ascii").split()]
    return found
