"""Which workers fit into a host's memory: what must be, what is needed, and then what is worth most a byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

_STAYS = 1.25
"""Who is there stays unless another one is worth so much more: else they would take turns for nothing."""


class Why(IntEnum):
    """Why there should be a worker; a lower one goes first."""

    MINIMUM = 0
    """The deployer wants it there always."""

    NEEDED = 1
    """Requests run or wait."""

    AHEAD = 2
    """A request is on its way to it."""

    KEPT = 3
    """One may come."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One worker that there should be.

    Attributes:
        group: Whose.
        nbytes: Memory that it takes.
        why: Why.
        value: How much it is worth, in cold starts (by their weight) that it saves a second.
        held: Whether it is there already.
    """

    group: str
    nbytes: float
    why: Why
    value: float = 0.0
    held: bool = False

    @property
    def order(self) -> tuple[int, float]:
        """What is taken first; among equals for a tenant's turn, the order that they came in."""
        if self.why in (Why.MINIMUM, Why.NEEDED):
            return self.why, 0.0
        return self.why, -self.value * (_STAYS if self.held else 1.0) / max(self.nbytes, 1.0)


def admit(claims: Iterable[Claim], room_nbytes: float) -> Counter[str]:
    """Workers by group that there is room for.

    Args:
        claims: All that there should be; needed ones in the order of whose turn it is.
        room_nbytes: What all of them may take together.

    Source: the greedy rule for knapsacks by value a byte, which is that of greedy-dual caches.
    """
    admitted: Counter[str] = Counter()
    left = room_nbytes
    for claim in sorted(claims, key=lambda one: one.order):
        if claim.nbytes <= left:
            left -= claim.nbytes
            admitted[claim.group] += 1
    return admitted
