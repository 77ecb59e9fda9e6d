"""Draw tokens by their probabilities, among those that top-k, top-p and min-p leave; all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.generation.sampling import SamplingConfig

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Tokens = NDArray[np.intp]

_FIRST_CANDIDATES = 256


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows to draw from: weights float32 `(row, vocabulary)`, their sums, the limits and the random numbers."""

    weights: Floats
    totals: Doubles
    top_k: Tokens
    top_p: Doubles
    min_p: Doubles
    uniforms: Doubles

    def of(self, rows: NDArray[Any]) -> _Rows:
        """Some of the rows."""
        return _Rows(*(getattr(self, name)[rows] for name in self.__slots__))

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Whether a row has limits."""
        return (self.top_k > 0) | (self.top_p < 1) | (self.min_p > 0)


def draw_tokens(logits: Floats, configs: Sequence[SamplingConfig], uniforms: Sequence[float]) -> Tokens:
    """One token for each row, int `(row,)`.

    Args:
        logits: float32 `(row, vocabulary)`; written to.
        configs: Settings of each row, none of them greedy.
        uniforms: A random number in [0, 1) for each row.
    """
    logits -= logits.max(axis=1, keepdims=True)
    logits /= np.array([config.temperature for config in configs], np.float32)[:, None]
    weights = np.exp(logits, out=logits)
    rows = _Rows(
        weights,
        weights.sum(axis=1, dtype=np.float64),
        np.array([config.top_k for config in configs]),
        np.array([config.top_p for config in configs]),
        np.array([config.min_p for config in configs]),
        np.array(uniforms),
    )
    tokens = np.empty(len(weights), np.intp)
    truncated = rows.truncated
    for some, draw in ((truncated, _draw_truncated), (~truncated, _draw_from_all)):
        if some.any():
            tokens[some] = draw(rows.of(some))
    return tokens


def largest(values: Floats, count: int) -> Tokens:
    """Indices of the largest values of each row, largest first, int `(row, count)`; ties go to the lower index."""
    size = values.shape[1]
    if count < size:
        some = np.argpartition(values, size - count, axis=1)[:, size - count :]
    else:
        some = np.broadcast_to(np.arange(size), values.shape)
    order = np.lexsort((some, -np.take_along_axis(values, some, axis=1)), axis=1)
    return np.take_along_axis(some, order, axis=1)


def _draw_from_all(rows: _Rows) -> Tokens:
    return _pick(rows.weights.cumsum(axis=1, dtype=np.float64), rows.uniforms)


def _draw_truncated(rows: _Rows, size: int = _FIRST_CANDIDATES) -> Tokens:
    """Among the likeliest `size` tokens: sorting the whole vocabulary costs more than a decode step's share."""
    size = min(size, rows.weights.shape[1])
    order = largest(rows.weights, size)
    chosen = np.take_along_axis(rows.weights, order, axis=1).astype(np.float64)
    kept = _kept(rows, chosen)
    tokens = np.take_along_axis(order, _pick((chosen * kept).cumsum(axis=1), rows.uniforms)[:, None], axis=1)[:, 0]
    short = (rows.top_k > size) | ((rows.top_k == 0) & kept[:, -1])
    if size < rows.weights.shape[1] and short.any():
        tokens[short] = _draw_truncated(rows.of(short), rows.weights.shape[1])
    return tokens


def _kept(rows: _Rows, chosen: Doubles) -> NDArray[np.bool_]:
    """Which of the likeliest tokens the limits leave; top-p is a share of what top-k left."""
    limited = rows.top_k[:, None] > 0
    kept = ~limited | (np.arange(chosen.shape[1]) < rows.top_k[:, None])
    left = chosen * kept
    before = left.cumsum(axis=1) - left
    whole = np.where(limited[:, 0], left.sum(axis=1), rows.totals)
    kept &= (rows.top_p[:, None] >= 1) | (before < (rows.top_p * whole)[:, None])
    kept &= chosen >= rows.min_p[:, None] * chosen[:, :1]
    return kept


def _pick(steps: Doubles, uniforms: Doubles) -> Tokens:
    """Where each row's running sum passes the random share of its end."""
    places: Tokens = (steps <= (uniforms * steps[:, -1])[:, None]).sum(axis=1)
    return places
