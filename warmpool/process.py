"""Child processes that cannot outlive their parent.

    python -m warmpool.process PARENT_PID COMMAND [ARGUMENT …]

asks the kernel to kill this process when its parent dies, and becomes the command. Going through an exec
keeps forks of a multi-threaded parent trivial: nothing of Python runs between fork and exec.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the process `parent_pid`, which must be the parent, ends.

    Linux only; elsewhere a child of a parent that was killed lives on until it is told to stop.

    Source: prctl(2), PR_SET_PDEATHSIG; it survives execve(2).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the call
            os._exit(1)


async def spawn(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, log_path: str | None = None
) -> asyncio.subprocess.Process:
    """Start a child that dies with this process, in a session of its own.

    A session of its own keeps Ctrl-C in a terminal from reaching the child: its parent stops it in order.

    Args:
        command: What to run.
        environment: Its environment; None: ours.
        log_path: File that its output is appended to; None: our own output.
    """
    guard = [sys.executable, "-m", "warmpool.process", str(os.getpid()), *command]
    if log_path is None:
        return await asyncio.create_subprocess_exec(*guard, env=environment, start_new_session=True)
    with open(log_path, "ab") as log:  # noqa: ASYNC230 - opening a local file once per child
        return await asyncio.create_subprocess_exec(
            *guard, env=environment, start_new_session=True, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )


async def stop(process: asyncio.subprocess.Process, grace_s: float) -> int:
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
