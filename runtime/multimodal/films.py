"""Which moments of a film are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

_SHORTEST_S = 0.3
"""A scene that is shorter is hardly seen by those who watch the film."""

_WITHIN = 0.1


def evenly_spread(
    seconds: float, frames_per_second: float, *, most: int, rate: float, skip_s: float = 0.0
) -> list[float]:
    """Moments at which whole frames are on show, evenly spread.

    Args:
        seconds: Length of the film.
        frames_per_second: Of the film.
        most: The most frames.
        rate: Frames to take a second.
        skip_s: Left out at both ends of a film that is long for so many frames.

    Returns:
        Seconds, rising, one at least.

    Source: `sample_frames` of SmolVLM's video processor in transformers.
    """
    total = max(1, round(seconds * frames_per_second))
    wanted = max(1, min(round(rate * seconds), most))
    first, last = 0, total - 1
    if skip_s > 0 and seconds - 2 * skip_s > most * rate:
        first = int(skip_s * frames_per_second)
        last = min(int(total - skip_s * frames_per_second), last)
    if first >= last:
        first, last = 0, total - 1
    places = np.unique(np.linspace(first, last, wanted, dtype=int))
    # A little after a frame comes on show: containers round times.
    return [float((place + _WITHIN) / frames_per_second) for place in places]


def with_scenes(
    moments: Sequence[float], cuts: Sequence[float], *, seconds: float, most: int, each: int
) -> list[float]:
    """The moments, and some more in scenes that none of them is in, the longest first.

    Args:
        moments: Seconds, rising.
        cuts: Where scenes begin, in seconds, rising.
        seconds: Length of the film.
        most: The most moments in all; no more than a quarter is added.
        each: How many moments a scene gets.

    Returns:
        Seconds, rising.
    """
    unseen = [
        (end - start, start)
        for start, end in pairwise([0.0, *cuts, seconds])
        if end - start >= _SHORTEST_S and not any(start <= moment < end for moment in moments)
    ]
    room = min(most - len(moments), len(moments) // 4) // each
    added = [
        start + length * (place + 1) / (each + 1)
        for length, start in sorted(unseen, reverse=True)[: max(0, room)]
        for place in range(each)
    ]
    return sorted([*moments, *added])
