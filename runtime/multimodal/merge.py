"""Fewer tokens without training: neighbours that say the same become one.

Source: Bolya et al., Token Merging (ICLR 2023), section 3, with neighbours in space and time in the place of two halves
    of all tokens, so that a merged token still has a place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece
from runtime.multimodal.family import Laid
from runtime.multimodal.prepared import Floats

Indices = NDArray[np.int64]

_TOUCHING = 1e-4
"""Edges of two regions that are closer than this share of the picture are the same edge."""

_TOGETHER = 64

_LARGEST = 2.0
"""Tokens that one stands for, over what each would if all stood for as many: measured in docs/performance.md."""


def merge(laid: Laid, tokens: int) -> Laid:
    """The same media in fewer tokens, as far as neighbours can be put together.

    The most similar pairs of neighbours go first, as long as no token stands for more than twice as many as the average
    (where that is still too many tokens, more); a token that stands for several is their mean, each counted once.
    It has the position of the one that is most like it (the very last token keeps its own, so that what follows in the
    prompt stays where it was) and the region of all. Tokens of different pieces of the frame are no neighbours.

    Args:
        laid: Tokens with positions; pictures need regions, without which they have no neighbours.
        tokens: How many there are to be.

    Returns:
        At least `tokens` tokens, more where nothing is left to be put together.
    """
    groups, largest = _Groups(laid), _LARGEST * len(laid.embeddings) / tokens
    while groups.count > tokens:
        if not groups.merge_pairs(groups.count - tokens, largest):
            if largest > len(laid.embeddings):
                break
            largest *= 2
    return groups.laid()


class _Groups:
    """Tokens in groups that grow together pair by pair."""

    def __init__(self, laid: Laid) -> None:
        self._laid = laid
        count = len(laid.embeddings)
        # What all tokens have in common says nothing about which of them are alike.
        self._sums = (laid.embeddings - laid.embeddings.mean(axis=0, keepdims=True)).astype(np.float32)
        self._sizes = np.ones(count, np.float32)
        self._of = np.arange(count)
        self._edges = _neighbours(laid)

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self._sizes)

    def merge_pairs(self, most: int, largest: float) -> int:
        """Put pairs together of which each is the other's most similar neighbour; how many.

        Args:
            most: The most pairs.
            largest: The most tokens of a group.
        """
        edges = self._edges[self._sizes[self._edges].sum(axis=1) <= largest]
        if not len(edges):
            return 0
        left, right = edges.T
        alike = self._likeness(left, right)
        best = np.full(self.count, -np.inf, np.float32)
        np.maximum.at(best, left, alike)
        np.maximum.at(best, right, alike)
        chosen = np.flatnonzero((alike == best[left]) & (alike == best[right]))
        chosen = chosen[np.argsort(-alike[chosen], kind="stable")]
        pairs = _disjoint(edges[chosen], most)
        self._join(pairs)
        return len(pairs)

    def laid(self) -> Laid:
        """The groups as tokens."""
        laid, order = self._laid, np.argsort(self._of, kind="stable")
        starts = np.searchsorted(self._of[order], np.arange(self.count))
        sizes = self._sizes[:, None]
        means = np.add.reduceat(laid.embeddings[order], starts, axis=0) / sizes
        spoken_for = self._spokesmen(order, starts, means.astype(np.float32))
        sequence = np.argsort(spoken_for)
        pieces = _piece_of_tokens(laid.frame)[spoken_for[sequence]]
        return replace(
            laid,
            embeddings=np.ascontiguousarray(means[sequence], np.float32),
            positions=np.ascontiguousarray(laid.positions[:, spoken_for[sequence]]),
            frame=_shortened(laid.frame, np.bincount(pieces, minlength=len(laid.frame))),
            regions=None if laid.regions is None else _hulls(laid.regions[order], starts)[sequence],
        )

    def _likeness(self, left: Indices, right: Indices) -> Floats:
        """Cosine of the means of two groups; the length of a sum is that of its mean, times its size."""
        norms = np.sqrt(np.einsum("gd,gd->g", self._sums, self._sums))
        found = np.empty(len(left), np.float32)
        for start in range(0, len(left), _TOGETHER):  # copies of all rows at once would fall out of the caches
            part = slice(start, start + _TOGETHER)
            np.einsum("ed,ed->e", self._sums[left[part]], self._sums[right[part]], out=found[part])
        found /= np.maximum(norms[left] * norms[right], np.float32(1e-12))
        return found

    def _join(self, pairs: Indices) -> None:
        target = np.arange(self.count)
        target[pairs[:, 1]] = pairs[:, 0]
        self._sums[pairs[:, 0]] += self._sums[pairs[:, 1]]
        self._sizes[pairs[:, 0]] += self._sizes[pairs[:, 1]]
        kept, renumbered = np.unique(target, return_inverse=True)
        self._sums, self._sizes = self._sums[kept], self._sizes[kept]
        self._of = renumbered[self._of]
        edges = np.sort(renumbered[self._edges], axis=1)
        self._edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)

    def _spokesmen(self, order: Indices, starts: Indices, means: Floats) -> Indices:
        """Of each group, the token that is nearest to its mean."""
        distances = np.square(self._laid.embeddings - means[self._of]).sum(axis=1)
        distances[-1] = -1  # the very last one
        by_distance = np.lexsort((distances, self._of))
        return by_distance[starts]


def _disjoint(pairs: Indices, most: int) -> Indices:
    """The first pairs that share no token: neighbours that are all the same are each other's most similar ones."""
    taken: set[int] = set()
    found: list[tuple[int, int]] = []
    for left, right in pairs.tolist():
        if len(found) == most:
            break
        if left not in taken and right not in taken:
            taken |= {left, right}
            found.append((left, right))
    return np.array(found, np.int64).reshape(-1, 2)


def _neighbours(laid: Laid) -> Indices:
    """Pairs of tokens of one piece of the frame that touch in space, or follow each other in time."""
    piece = _piece_of_tokens(laid.frame)
    if laid.regions is None:
        if laid.seconds_per_step is None:
            return np.zeros((0, 2), np.int64)
        places = np.arange(len(piece) - 1)
        following: Indices = np.stack([places, places + 1], axis=1)[piece[:-1] == piece[1:]]
        return following
    left, top, right, bottom = laid.regions.astype(np.float64).round(6).T
    # A frame ends where the next token lies before the last one; positions do not tell in families without axes.
    again_from = (top[1:] < top[:-1]) | ((top[1:] == top[:-1]) & (left[1:] <= left[:-1]))
    step = np.concatenate([[0], np.cumsum(again_from)])
    across = _touching((piece, step, top, left), starts=left, ends=right, same=(piece, step, top))
    down = _touching((piece, step, left, top), starts=top, ends=bottom, same=(piece, step, left))
    order = np.lexsort((step, top, left, piece))
    again = np.stack([order[:-1], order[1:]], axis=1)
    alike = _equal(again, piece, left, top, right, bottom) & (step[again[:, 0]] != step[again[:, 1]])
    return np.unique(np.sort(np.concatenate([across, down, again[alike]]), axis=1), axis=0)


def _touching(
    keys: tuple[NDArray[np.generic], ...],
    *,
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    same: tuple[NDArray[np.generic], ...],
) -> Indices:
    """Pairs that follow each other along an axis, the end of one being the start of the other."""
    order = np.lexsort(keys[::-1])
    pairs: Indices = np.stack([order[:-1], order[1:]], axis=1)
    meets: NDArray[np.bool_] = np.abs(ends[pairs[:, 0]] - starts[pairs[:, 1]]) < _TOUCHING
    return pairs[meets & _equal(pairs, *same)]


def _equal(pairs: Indices, *values: NDArray[np.generic]) -> NDArray[np.bool_]:
    equal = np.ones(len(pairs), np.bool_)
    for value in values:
        equal &= value[pairs[:, 0]] == value[pairs[:, 1]]
    return equal


def _piece_of_tokens(frame: tuple[FramePiece, ...]) -> Indices:
    return np.repeat(np.arange(len(frame)), [piece.slots for piece in frame])


def _shortened(frame: tuple[FramePiece, ...], slots: Indices) -> tuple[FramePiece, ...]:
    return tuple(
        piece.model_copy(update={"slots": int(count)}) if piece.slots else piece
        for piece, count in zip(frame, slots, strict=True)
    )


def _hulls(regions: Floats, starts: Indices) -> Floats:
    """The smallest region around those of each group."""
    low = np.minimum.reduceat(regions[:, :2], starts, axis=0)
    high = np.maximum.reduceat(regions[:, 2:], starts, axis=0)
    return np.concatenate([low, high], axis=1)
