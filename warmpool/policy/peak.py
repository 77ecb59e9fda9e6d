"""Timers: a narrow stretch that most idle times fall into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST = 4
_SHARE = 0.75
_NARROW = 0.2
"""How wide a peak is at most, as a share of the idle time."""

_MARGIN = 1.0
_LEAST_MARGIN_S = 0.5


class Peak(NamedTuple):
    """Where most idle times lie.

    Attributes:
        start_s: From here.
        end_s: To here.
        share: So many of them, 0 to 1.
    """

    start_s: float
    end_s: float
    share: float


def find_peak(idle_s: Sequence[float]) -> Peak | None:
    """The narrowest stretch with three quarters of the idle times, when it is narrow for a time of that length.

    Args:
        idle_s: The latest idle times, in seconds.
    """
    if len(idle_s) < _LEAST:
        return None
    ordered = sorted(idle_s)
    inside = max(_LEAST - 1, int(len(ordered) * _SHARE + 0.5))
    start = min(range(len(ordered) - inside + 1), key=lambda at: ordered[at + inside - 1] - ordered[at])
    low, high = ordered[start], ordered[start + inside - 1]
    if high - low > _NARROW * high:
        return None
    # What was seen says little about how far the next one may stray: as much again to both sides.
    margin = max(_LEAST_MARGIN_S, _MARGIN * (high - low))
    low, high = max(0.0, low - margin), high + margin
    return Peak(low, high, sum(low <= one <= high for one in ordered) / len(ordered))
