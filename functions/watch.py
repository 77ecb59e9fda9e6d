"""What a worker does with its messages, told to whoever looks at it from outside."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class RunState(IntEnum):
    """What a worker does with a message."""

    NONE = 0
    """Nothing: it does not have it."""

    WAITING = 1
    """It has it, and does nothing with it now."""

    RUNNING = 2
    """Its handler runs."""

    STUCK = 3
    """Its handler was told to end, and a thread of it goes on all the same."""


class RunWatch(Protocol):
    """Keeps what is done with each message where it can be read when the worker is dead."""

    def begin(self, key: str, state: RunState = RunState.WAITING, *, subject: str = "", tenant: str = "") -> int:
        """Note a message; returns a number to change and end it by.

        Args:
            key: Its id, ASCII.
            state: What is done with it.
            subject: Where it was published; empty: it does not count as one that has come.
            tenant: The label of whose it is.
        """

    def change(self, slot: int, state: RunState) -> None:
        """Note what is done with it now."""

    def end(self, slot: int) -> None:
        """It is settled."""


class NoWatch:
    """For a worker that nobody looks at."""

    def begin(self, key: str, state: RunState = RunState.WAITING, *, subject: str = "", tenant: str = "") -> int:
        """See `RunWatch`."""
        return 0

    def change(self, slot: int, state: RunState) -> None:
        """See `RunWatch`."""

    def end(self, slot: int) -> None:
        """See `RunWatch`."""
