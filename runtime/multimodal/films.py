"""Which moments of a film are looked at."""

from __future__ import annotations

import numpy as np


def evenly_spread(
    seconds: float, frames_per_second: float, *, most: int, rate: float, skip_s: float = 0.0
) -> list[float]:
    """Moments of whole frames, evenly spread.

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
    return [float(place / frames_per_second) for place in places]
