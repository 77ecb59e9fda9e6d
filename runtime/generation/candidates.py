"""Draw tokens by their probabilities, among those that top-k, top-p and min-p leave.

What is as large as the vocabulary is done row by row and in place: one row fits into the processor's cache, and eight
new arrays of that size cost more in page faults than the arithmetic in them. What is left is done for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.generation.sampling import SamplingConfig

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Tokens = NDArray[np.intp]

_FIRST_CANDIDATES = 256
# How many more candidates each further try takes: sorting a whole vocabulary costs as much as a share of a decode step.
_GROWTH = 16
_SUMMED = 256
_COMPARED = 64


def draw_tokens(
    logits: Floats, rows: Sequence[int], configs: Sequence[SamplingConfig], uniforms: Sequence[float]
) -> list[int]:
    """One token for each of some rows.

    Args:
        logits: float32 `(row, vocabulary)`; the rows that are drawn from are written to.
        rows: Which rows.
        configs: Settings of each of them, none greedy.
        uniforms: A random number in [0, 1) for each of them.
    """
    tokens = [0] * len(rows)
    limited: list[int] = []
    for place, (row, config) in enumerate(zip(rows, configs, strict=True)):
        weights = logits[row]
        weights -= weights.max()
        weights /= np.float32(config.temperature)
        np.exp(weights, out=weights)
        if config.top_k or config.top_p < 1 or config.min_p:
            limited.append(place)
        else:
            tokens[place] = _draw_from_all(weights, uniforms[place])
    if limited:
        weights_of = [logits[rows[place]] for place in limited]
        chosen = _draw_limited(weights_of, [configs[one] for one in limited], [uniforms[one] for one in limited])
        for place, token in zip(limited, chosen, strict=True):
            tokens[place] = token
    return tokens


def largest(values: Floats, count: int) -> Tokens:
    """Indices of the largest values, largest first, int `(count,)`; ties go to the lower index.

    Args:
        values: float32 `(vocabulary,)`.
        count: How many, at most all.
    """
    found = _above(values, count)
    if len(found) > 4 * count:
        found = found[np.argpartition(values[found], len(found) - count)[len(found) - count :]]
    order: Tokens = found[np.lexsort((found, -values[found]))[:count]]
    return order


def _above(values: Floats, count: int) -> Tokens:
    """Some indices, among them those of the `count` largest values.

    The count-th largest of the blocks' maxima is a lower bound of the count-th largest value.
    """
    blocks = len(values) // _COMPARED
    if count >= blocks:
        return np.arange(len(values))
    maxima = values[: blocks * _COMPARED].reshape(blocks, _COMPARED).max(axis=1)
    return np.flatnonzero(values >= np.partition(maxima, blocks - count)[blocks - count])


def _draw_from_all(weights: Floats, uniform: float) -> int:
    """Invert the distribution in two steps: which block, and where in it."""
    whole = len(weights) // _SUMMED * _SUMMED
    sums = weights[:whole].reshape(-1, _SUMMED).sum(axis=1)
    sums = np.append(sums, weights[whole:].sum())
    steps = sums.cumsum(dtype=np.float64)
    target = uniform * steps[-1]
    # Rounding may leave the target behind the last block or token; one without weight must not be drawn.
    start = min(int(np.searchsorted(steps, target, side="right")), int(np.flatnonzero(sums)[-1]))
    block = weights[start * _SUMMED : (start + 1) * _SUMMED]
    inner = block.cumsum(dtype=np.float64) + (steps[start - 1] if start else 0.0)
    found = min(int(np.searchsorted(inner, target, side="right")), int(np.flatnonzero(block)[-1]))
    return start * _SUMMED + found


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of each row: its limits, the sum of its weights and its random number, all float64 or int `(row,)`."""

    top_k: Tokens
    top_p: Doubles
    min_p: Doubles
    totals: Doubles
    uniforms: Doubles


def _draw_limited(
    weights: Sequence[Floats],
    configs: Sequence[SamplingConfig],
    uniforms: Sequence[float],
    size: int = _FIRST_CANDIDATES,
) -> list[int]:
    """Among the likeliest `size` tokens of each row, or more where the limits leave more."""
    size = min(size, len(weights[0]))
    limits = _Limits(
        np.array([config.top_k for config in configs]),
        np.array([config.top_p for config in configs]),
        np.array([config.min_p for config in configs]),
        np.array([row.sum(dtype=np.float64) for row in weights]),
        np.array(uniforms),
    )
    order = np.stack([largest(row, size) for row in weights])
    chosen = np.stack([row[ids] for row, ids in zip(weights, order, strict=True)]).astype(np.float64)
    kept = _kept(limits, chosen)
    left = chosen * kept
    steps = left.cumsum(axis=1)
    picked = (steps <= (limits.uniforms * steps[:, -1])[:, None]).sum(axis=1)
    picked = np.minimum(picked, (left > 0).sum(axis=1) - 1)  # a target that was rounded up to the end
    tokens: list[int] = order[np.arange(len(order)), picked].tolist()
    short = (limits.top_k > size) | ((limits.top_k == 0) & kept[:, -1] & (chosen[:, -1] > 0))
    again = np.flatnonzero(short).tolist() if size < len(weights[0]) else []
    if again:
        wider = _draw_limited(
            [weights[place] for place in again],
            [configs[place] for place in again],
            [uniforms[place] for place in again],
            size * _GROWTH,
        )
        for place, token in zip(again, wider, strict=True):
            tokens[place] = token
    return tokens


def _kept(limits: _Limits, chosen: Doubles) -> NDArray[np.bool_]:
    """Which of the likeliest tokens the limits leave; top-p is a share of what top-k left."""
    limited = limits.top_k[:, None] > 0
    kept = ~limited | (np.arange(chosen.shape[1]) < limits.top_k[:, None])
    left = chosen * kept
    before = left.cumsum(axis=1) - left
    whole = np.where(limited[:, 0], left.sum(axis=1), limits.totals)
    kept &= (limits.top_p[:, None] >= 1) | (before < (limits.top_p * whole)[:, None])
    kept &= chosen >= limits.min_p[:, None] * chosen[:, :1]
    return kept
