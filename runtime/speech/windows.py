"""Long sound cut where nobody speaks, into windows that a model hears at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

MARGIN_S = 0.5
"""Silence kept around a window, in seconds: a model drops words that begin with the sound itself."""

_LOOK_BACK_S = 5.0
_QUIET_S = 0.1


def speech_windows(
    voice: Sequence[tuple[float, float]], samples: NDArray[np.float32], window_s: float, sample_rate_hz: int = 16_000
) -> list[tuple[float, float]]:
    """Windows that hold all speech and begin and end with it.

    Args:
        voice: Where somebody speaks, (start, end) in seconds, in order.
        samples: float32 (sample,), mono.
        window_s: The longest window.
        sample_rate_hz: Of the samples.

    Returns:
        (start, end) in seconds, in order, disjoint, none longer than `window_s`.
    """
    windows: list[tuple[float, float]] = []
    for start_s, end_s in _short(voice, samples, window_s - 2 * MARGIN_S, sample_rate_hz):
        if windows and end_s - windows[-1][0] <= window_s - 2 * MARGIN_S:
            windows[-1] = (windows[-1][0], end_s)
        else:
            windows.append((start_s, end_s))
    seconds = len(samples) / sample_rate_hz
    # Half of a pause at most, so that no sound is heard twice.
    ends = [0.0, *((left[1] + right[0]) / 2 for left, right in pairwise(windows)), seconds]
    return [
        (max(low, start_s - MARGIN_S), min(high, end_s + MARGIN_S))
        for (low, high), (start_s, end_s) in zip(pairwise(ends), windows, strict=False)
    ]


def _short(
    voice: Sequence[tuple[float, float]], samples: NDArray[Any], window_s: float, sample_rate_hz: int
) -> Iterator[tuple[float, float]]:
    """Stretches of speech, those without a pause for a whole window cut at their quietest moment."""
    for start_s, end_s in voice:
        begun_s = start_s
        while end_s - begun_s > window_s:
            cut_s = _quietest(samples, begun_s + window_s - _LOOK_BACK_S, begun_s + window_s, sample_rate_hz)
            yield begun_s, cut_s
            begun_s = cut_s
        yield begun_s, end_s


def _quietest(samples: NDArray[Any], from_s: float, to_s: float, sample_rate_hz: int) -> float:
    span = samples[int(from_s * sample_rate_hz) : int(to_s * sample_rate_hz)].astype(np.float64)
    width = int(_QUIET_S * sample_rate_hz)
    if len(span) <= width:
        return to_s
    energy = np.cumsum(np.concatenate([[0.0], span**2]))
    return from_s + (int(np.argmin(energy[width:] - energy[:-width])) + width / 2) / sample_rate_hz
