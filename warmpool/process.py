"""Child processes that cannot outlive their parent.

    python -m warmpool.process PARENT_PID COMMAND [ARGUMENT …]

asks the kernel to kill this process when its parent dies, and becomes the command. Going through an exec
keeps forks of a multi-threaded parent trivial: nothing of Python runs between fork and exec.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from bus.errors import WorkerStartError

NO_ROOM = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Numbers of the errors of a host that has no room for another process or file now."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


class Process(Protocol):
    """A process that can be waited for: a child of asyncio's, or one that was adopted."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def returncode(self) -> int | None:
        """Exit status, or minus the number of the signal that killed it; None while it lives."""

    async def wait(self) -> int:
        """Wait for its end; returns its exit status."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the process `parent_pid`, which must be the parent, ends.

    Linux only; elsewhere a child of a parent that was killed lives on until it is told to stop.

    Source: prctl(2), PR_SET_PDEATHSIG; it survives execve(2).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the call
            os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that it can be waited for.

    Raises:
        WorkerStartError: The kernel does not allow it.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise WorkerStartError(
            f"this process may not adopt its workers: {os.strerror(ctypes.get_errno())}; set OMNIBUS_FORK=false to "
            "start each of them anew"
        )


def name_process(name: str) -> None:
    """How the process is called in `ps -o comm` and `top`; the first 15 bytes count. Linux only.

    Source: prctl(2), PR_SET_NAME.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


async def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log_path: str | None = None,
    descriptors: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    """Start a child that dies with this process, in a session of its own.

    A session of its own keeps Ctrl-C in a terminal from reaching the child: its parent stops it in order.

    Args:
        command: What to run.
        environment: Its environment; None: ours.
        log_path: File that its output is appended to; None: our own output.
        descriptors: Files that it gets, under the same numbers.
    """
    guard = [sys.executable, "-m", "warmpool.process", str(os.getpid()), *command]
    if log_path is None:
        return await asyncio.create_subprocess_exec(
            *guard, env=environment, start_new_session=True, pass_fds=tuple(descriptors)
        )
    with open(log_path, "ab") as log:  # noqa: ASYNC230 - opening a local file once per child
        return await asyncio.create_subprocess_exec(
            *guard, env=environment, start_new_session=True, pass_fds=tuple(descriptors),
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


async def stop(process: Process, grace_s: float) -> int:
    """Ask the process to end, and kill it when it has not after the grace period; returns its exit status."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                return await process.wait()
        except TimeoutError:
            process.kill()
    return await process.wait()


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
