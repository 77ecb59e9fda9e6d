"""Who has to leave so that a model fits: pure, with everything that it depends on as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resident:
    """A model in memory.

    Attributes:
        name: What it is asked for by.
        refs: `id@version` of what it was made of.
        device: Where it is.
        nbytes: Measured, or estimated until it has been.
        pinned: Whether it stays.
        leases: Runs that use it now.
        last_used: Grows with every use; the smallest one was used longest ago.
    """

    name: str
    refs: tuple[str, ...]
    device: str
    nbytes: int
    pinned: bool = False
    leases: int = 0
    last_used: int = 0

    @property
    def movable(self) -> bool:
        """Whether it may be evicted."""
        return not self.pinned and self.leases == 0


@dataclass(frozen=True, slots=True)
class Room:
    """How room is made.

    Attributes:
        evict: Who leaves, in this order.
        missing_nbytes: What is still missing then; 0: it fits.
    """

    evict: tuple[Resident, ...]
    missing_nbytes: int


def make_room(
    need_nbytes: int, residents: Sequence[Resident], *, budget_nbytes: int | None, free_nbytes: int | None
) -> Room:
    """The fewest, least recently used models whose leaving makes room.

    Args:
        need_nbytes: Of the model that is wanted.
        residents: Of its device.
        budget_nbytes: For all models of the device; None: no budget.
        free_nbytes: What the host can still give; None: unknown. For devices with memory of their own, theirs.
    """
    used = sum(one.nbytes for one in residents)
    over_budget = 0 if budget_nbytes is None else used + need_nbytes - budget_nbytes
    over_free = 0 if free_nbytes is None else need_nbytes - free_nbytes
    missing = max(0, over_budget, over_free)
    evict: list[Resident] = []
    for one in sorted(residents, key=lambda one: one.last_used):
        if missing <= 0:
            break
        if one.movable:
            evict.append(one)
            missing -= one.nbytes
    if missing > 0:
        return Room((), missing)  # nobody leaves for a model that will not fit anyway
    return Room(tuple(evict), 0)
