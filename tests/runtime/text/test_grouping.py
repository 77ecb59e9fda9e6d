"""Which texts run together."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.text.grouping import _MOST_ROWS, _MOST_TOKENS, _RUN_COST, group_by_length


def cost(groups: list[list[int]], lengths: list[int]) -> int:
    return sum(len(group) * max(max(lengths[place] for place in group), 1) + _RUN_COST for group in groups)


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([], []),
        ([7], [[0]]),
        ([7, 7, 7], [[0, 1, 2]]),
        ([5, 100, 6], [[0, 2], [1]]),
        ([100, 5, 5, 98], [[1, 2], [3, 0]]),
        ([0, 0], [[0, 1]]),
    ],
)
def test_texts_of_similar_length_run_together(lengths: list[int], groups: list[list[int]]) -> None:
    assert group_by_length(lengths) == groups


@given(st.lists(st.integers(0, 60), min_size=1, max_size=7))
def test_no_other_cuts_of_the_sorted_texts_are_cheaper(lengths: list[int]) -> None:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    inner = range(1, len(order))
    cuts = [cut for count in range(len(order)) for cut in combinations(inner, count)]
    all_costs = []
    for cut in cuts:
        ends = (*cut, len(order))
        all_costs.append(cost([order[a:b] for a, b in zip((0, *cut), ends, strict=True)], lengths))
    assert cost(group_by_length(lengths), lengths) == min(all_costs)


@given(st.lists(st.integers(0, 512), max_size=200))
def test_every_text_runs_once_and_no_run_takes_too_much(lengths: list[int]) -> None:
    groups = group_by_length(lengths)
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= _MOST_ROWS
        assert len(group) * max(lengths[place] for place in group) <= _MOST_TOKENS
