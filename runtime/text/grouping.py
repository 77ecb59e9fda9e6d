"""Texts of mixed lengths in as few padded runs as pay: a token of padding costs as much as a token of text."""

from __future__ import annotations

from collections.abc import Sequence

_RUN_COST = 12
"""What a run costs beside its tokens, in tokens of a small encoder: measured, and flat from 8 to 16."""

_MOST_ROWS = 64
_MOST_TOKENS = 4096
"""Of a run, with padding: bounds the memory that it takes."""


def group_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Places of the texts that run together, each group padded to its longest; the cheapest of all groupings.

    Sorted by length, the best grouping is made of neighbours, so it is found by dynamic programming over the cuts.

    Args:
        lengths: Tokens of each text.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    costs, cuts = [0], [0]
    for end in range(1, len(order) + 1):
        longest = max(1, lengths[order[end - 1]])
        first = max(0, end - max(1, min(_MOST_ROWS, _MOST_TOKENS // longest)))
        cost, cut = min((costs[start] + (end - start) * longest + _RUN_COST, start) for start in range(first, end))
        costs.append(cost)
        cuts.append(cut)
    groups: list[list[int]] = []
    end = len(order)
    while end:
        groups.append(order[cuts[end] : end])
        end = cuts[end]
    return groups[::-1]
