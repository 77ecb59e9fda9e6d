"""How a pull tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A point in the work on one model.

    Attributes:
        model: Its id.
        action: `download`, `build`, `upload` or `ready`.
        subject: The file being downloaded or uploaded, or what is being built.
        done: Bytes so far; 0 for work that is not counted.
        total: Bytes in all; None when the source does not say.
    """

    model: str
    action: str
    subject: str = ""
    done: int = 0
    total: int | None = None


Progress = Callable[[Step], None]
"""Called often, from whichever thread reads, by one at a time."""

OnBytes = Callable[[str, int, int | None], None]
"""File name, bytes so far, bytes in all."""


def silent(*_: object) -> None:
    """Progress that nobody watches."""
