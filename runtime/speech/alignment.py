"""When each token was said: the path through where the decoder looked.

Source:
    `timing.py` of OpenAI's Whisper: some heads of the decoder's cross-attention follow the sound as the words go on;
    dynamic time warping finds the path through their averaged gaze.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FRAME_S = 0.02
"""Sound that one position of the encoder covers."""

_SMOOTHED = 7


def token_starts(scores: NDArray[np.float32], frames: int) -> NDArray[np.float64]:
    """When the gaze moves on to each token, in seconds from the start of the window.

    Args:
        scores: float32 (head, token, frame), attention before the softmax, of the tokens that each one is said after.
        frames: How many frames are sound; the rest is padding.

    Returns:
        float64 (token,), never falling.
    """
    heard = scores[:, :, : max(1, frames)].astype(np.float64)
    shares = np.exp(heard - heard.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    spread = shares.std(axis=1, keepdims=True)
    # A frame that all tokens look at alike tells nothing of any of them.
    gaze = (shares - shares.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    rows, columns = time_warp(-smoothed(gaze).mean(axis=0))
    first = np.searchsorted(rows, np.arange(scores.shape[1]))
    return np.asarray(columns[first] * FRAME_S, np.float64)


def smoothed(gaze: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median over seven frames, mirrored at the ends; as it is where there are too few frames."""
    reach = _SMOOTHED // 2
    if gaze.shape[-1] <= reach:
        return gaze
    padded = np.pad(gaze, ((0, 0), (0, 0), (reach, reach)), mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, _SMOOTHED, axis=-1), axis=-1))


def time_warp(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest way from the first corner to the last, one step down, right or both at a time.

    Args:
        cost: float64 (row, column).

    Returns:
        Rows and columns of the way, int64 (step,).

    Source: Sakoe and Chiba 1978, the symmetric form without slope constraint.
    """
    total = np.empty_like(cost)
    total[0] = np.cumsum(cost[0])
    for row in range(1, len(cost)):
        above = np.minimum(total[row - 1], np.concatenate([[np.inf], total[row - 1, :-1]]))
        # Along a row the way may go right for a while: the sum so far, less the sum where the row was entered.
        along = np.cumsum(cost[row])
        total[row] = along + np.minimum.accumulate(above - np.concatenate([[0.0], along[:-1]]))
    return _walked_back(total)


def _walked_back(total: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    row, column = total.shape[0] - 1, total.shape[1] - 1
    way = [(row, column)]
    while row or column:
        if row == 0:
            column -= 1
        elif column == 0:
            row -= 1
        else:
            steps = ((row - 1, column - 1), (row - 1, column), (row, column - 1))
            row, column = min(steps, key=lambda step: total[step])
        way.append((row, column))
    found = np.array(way[::-1], np.int64)
    return found[:, 0], found[:, 1]
