"""How many cores this process may use: said once by the worker, obeyed by every session."""

from __future__ import annotations

_cores = 0


def use_cores(count: int) -> None:
    """Let sessions that are opened from now on take so many cores; 0: every core of the machine."""
    global _cores  # one process, one share of the machine
    _cores = max(0, count)


def threads_for(asked: int) -> int:
    """Threads of one session: what was asked for, else this process's cores.

    Args:
        asked: 0: no wish.
    """
    return asked or _cores
