"""What Whisper may write: loops are cut, time stamps come in pairs and in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.speech.timestamps import END, FIRST, restrict, segments
from runtime.speech.whisper import without_loop

VOCABULARY = 51865


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        ([7] * 12, 1),
        ([1, 2, 3] + [7] * 12, 4),
        ([1, 2] * 6, 2),
        ([9, 1, 2, 3, 4] + [1, 2, 3, 4] * 4, 5),
    ],
)
def test_circles_are_cut_to_one_turn(tokens: list[int], kept: int) -> None:
    assert without_loop(tokens) == kept


@pytest.mark.parametrize("tokens", [[], [7], [7] * 4, [1, 2, 3] * 3, list(range(100)), [1, 2, 3, 4, 5, 6] * 4])
def test_what_a_speaker_may_repeat_is_kept(tokens: list[int]) -> None:
    assert without_loop(tokens) is None


@given(st.lists(st.integers(0, 3), max_size=40))
def test_what_is_kept_was_said_and_is_shorter(tokens: list[int]) -> None:
    kept = without_loop(tokens)
    assert kept is None or 0 < kept < len(tokens)


def allowed(tokens: list[int], favourite: int | None = None) -> set[int]:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[:FIRST] = 20.0  # words are far likelier than time stamps, so only the rules keep them out
    if favourite is not None:
        logits[favourite] = 30.0
    restrict(logits, tokens)
    return set(np.flatnonzero(logits > -np.inf).tolist())


def test_a_text_begins_with_a_time_within_the_first_second() -> None:
    assert allowed([]) == set(range(FIRST, FIRST + 51))


def test_words_follow_the_beginning_of_a_segment() -> None:
    assert max(allowed([FIRST + 5])) < FIRST


def test_after_a_segment_comes_the_next_one_or_the_end() -> None:
    words = allowed([FIRST, 100, FIRST + 50])
    assert END in words
    assert not any(token < END for token in words)
    assert min(token for token in words if token >= FIRST) == FIRST + 50


def test_time_never_runs_backwards() -> None:
    assert not any(FIRST <= token <= FIRST + 80 for token in allowed([FIRST, 100, FIRST + 80, FIRST + 80, 100]))


def test_a_time_is_chosen_when_all_times_together_are_likelier_than_any_word() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[100] = 2.0  # exp(2) is less than the sum over 1,500 time stamps of exp(0)
    restrict(logits, [FIRST, 100])
    assert np.isneginf(logits[:FIRST]).all()


def test_segments_carry_their_times_and_words() -> None:
    tokens = [FIRST, 5, 6, FIRST + 100, FIRST + 150, 7, FIRST + 200]
    assert segments(tokens, 30.0) == [(0.0, 2.0, [5, 6]), (3.0, 4.0, [7])]


def test_a_segment_that_never_closed_ends_with_the_window() -> None:
    assert segments([FIRST + 50, 5, 6], 3.5) == [(1.0, 3.5, [5, 6])]


def test_without_times_the_whole_window_is_one_segment() -> None:
    assert segments([5, 6, 7], 4.0) == [(0.0, 4.0, [5, 6, 7])]
