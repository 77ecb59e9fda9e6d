"""What Whisper may write: loops are cut, time stamps come in pairs and in order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.speech.decoding import Written, best, compression, without_loop
from runtime.speech.timestamps import END, FIRST, restrict, segments

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


def written(certainty: float, repetition: float) -> Written:
    return Written([1], certainty, repetition)


def tried(*made: Written, hopeless: bool = False) -> tuple[Written, int]:
    """What is taken, and how many tries were made."""
    count = 0

    def one_by_one() -> Iterator[Written]:
        nonlocal count
        for one in made:
            count += 1
            yield one

    return best(one_by_one(), hopeless=lambda _: hopeless), count


GOOD, GUESS, LOOP = written(-0.4, 1.5), written(-1.3, 1.5), written(-0.1, 5.0)


def test_the_first_text_that_can_be_believed_is_taken() -> None:
    assert tried(GOOD, GUESS) == (GOOD, 1)
    assert tried(LOOP, GUESS, GOOD, written(-0.2, 1.0)) == (GOOD, 3)


def test_where_nothing_can_be_believed_a_guess_is_better_than_a_loop() -> None:
    assert tried(LOOP, written(-1.9, 1.0), GUESS, LOOP) == (GUESS, 4)


def test_nothing_is_tried_again_where_there_is_nothing_to_hear() -> None:
    assert tried(GUESS, GOOD, hopeless=True) == (GUESS, 1)


def test_loops_compress_better_than_speech() -> None:
    assert compression("the same words again and " * 12) > 2.4
    assert compression("He was not an ill disposed young man, unless to be rather cold hearted is to be ill.") < 2.4
    assert compression("") == 0.0
