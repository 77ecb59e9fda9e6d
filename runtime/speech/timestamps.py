"""Whisper's time stamps: which token may follow which, and the segments that they mark.

Source:
    Radford et al. 2022, section 3.3 and `ApplyTimestampRules` of the published decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST = 50364
"""The token of 0.00 s; each one after it is a step later."""

STEP_S = 0.02
END = 50257
_LATEST_START = FIRST + 50  # one second


def restrict(logits: NDArray[Any], tokens: Sequence[int]) -> None:
    """Forbid what the rules forbid, in place.

    Args:
        logits: float32 (vocabulary,).
        tokens: What was said so far, time stamps included.
    """
    never = -np.inf
    if not tokens:
        logits[:FIRST] = never
        logits[_LATEST_START + 1 :] = never
        return
    stamped = tokens[-1] >= FIRST
    opened = len(tokens) < 2 or tokens[-2] >= FIRST
    if stamped and opened:  # a segment has begun: words follow
        logits[FIRST:] = never
    elif stamped:  # a segment has ended: the next one begins, or nothing follows
        logits[:END] = never
    latest = max((token for token in tokens if token >= FIRST), default=FIRST)
    # A segment has a length; a new one may begin where the last one ended.
    logits[FIRST : latest + (0 if stamped and not opened else 1)] = never
    if logits[:FIRST].max() < _sum_log(logits[FIRST:]):
        logits[:FIRST] = never


def segments(tokens: Sequence[int], seconds: float) -> list[tuple[float, float, list[int]]]:
    """Stretches of words as (start, end, tokens), in seconds from the start of the window.

    Args:
        tokens: A decoded window; a last segment that was never closed ends with it.
        seconds: Length of the window.
    """
    found: list[tuple[float, float, list[int]]] = []
    start_s, words = 0.0, []
    for token in tokens:
        if token < FIRST:
            words.append(token)
            continue
        at_s = min(seconds, (token - FIRST) * STEP_S)
        if words:
            found.append((start_s, at_s, words))
        start_s, words = at_s, []
    if words:
        found.append((start_s, seconds, words))
    return found


def _sum_log(logits: NDArray[Any]) -> float:
    peak = float(logits.max())
    return peak if peak == -np.inf else peak + float(np.log(np.exp(logits - peak).sum()))
