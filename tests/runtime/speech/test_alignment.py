"""When words were said: the warping path against all paths, the gaze of a decoder that looks where it should."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from runtime.speech.alignment import FRAME_S, time_warp, token_starts
from runtime.speech.words import split_words, timed_words


def ways(rows: int, columns: int) -> Iterator[list[tuple[int, int]]]:
    """Every way from the first corner to the last, by the definition."""
    if rows == columns == 1:
        yield [(0, 0)]
        return
    for back in ((1, 1), (1, 0), (0, 1)):
        if rows > back[0] and columns > back[1]:
            for way in ways(rows - back[0], columns - back[1]):
                yield [*way, (rows - 1, columns - 1)]


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(-9, 9).map(float))
    )
)
def test_no_way_is_cheaper(cost: NDArray[np.float64]) -> None:
    rows, columns = time_warp(cost)
    found = list(zip(rows.tolist(), columns.tolist(), strict=True))
    every = {tuple(way): sum(cost[place] for place in way) for way in ways(*cost.shape)}
    assert every[tuple(found)] == pytest.approx(min(every.values()))


def gaze(spans: list[tuple[int, int]], frames: int) -> NDArray[np.float32]:
    """Two heads that look at each token's own frames, one of them less sharply."""
    sharp = np.zeros((len(spans), frames), np.float32)
    for token, (begin, end) in enumerate(spans):
        sharp[token, begin:end] = 8.0
    return np.stack([sharp, sharp / 2])


def test_a_token_begins_where_the_gaze_moves_to_it() -> None:
    spans = [(0, 20), (20, 55), (55, 70), (70, 100)]
    starts = token_starts(gaze(spans, 120), 100)
    assert starts == pytest.approx([begin * FRAME_S for begin, _ in spans], abs=2 * FRAME_S)


def test_padding_is_not_looked_at() -> None:
    scores = gaze([(0, 20), (20, 40)], 100)
    scores[:, :, 60:] = 50.0
    assert token_starts(scores, 40).max() < 40 * FRAME_S


def test_fewer_frames_than_the_median_needs_are_enough() -> None:
    assert token_starts(gaze([(0, 1), (1, 2)], 4), 2).tolist() == [0.0, FRAME_S]


PIECES = [" He", " said", ",", ' "', "no", "body", '."', " (", "Ten", ")", " well", "-", "known"]


def read(tokens: list[int] | tuple[int, ...]) -> str:
    return "".join(PIECES[token] for token in tokens)


def test_words_are_what_blanks_part_and_marks_stay_with_them() -> None:
    words = split_words(range(len(PIECES)), lambda tokens: read(list(tokens)), "en")
    assert words == [(" He", 1), (" said,", 2), (' "nobody."', 4), (" (Ten)", 3), (" well-known", 3)]


def test_a_character_in_halves_is_one_piece() -> None:
    halves = "日本".encode()

    def decode(tokens: object) -> str:
        return bytes(halves[token] for token in tokens).decode("utf-8", "replace")  # type: ignore[attr-defined]

    assert split_words(range(len(halves)), decode, "ja") == [("日", 3), ("本", 3)]


def test_words_get_their_tokens_times_and_end_with_the_clip() -> None:
    starts = np.array([0.0, 0.2, 0.3, 0.5, 0.9])
    timed = timed_words([(" a", 1), (" bc", 2), (" d", 1)], starts, 0.8)
    assert timed == (
        (0.0, 0.2, "a"),
        (0.2, 0.5, "bc"),
        (0.5, 0.8, "d"),
    )


def test_a_pause_belongs_to_no_word() -> None:
    words = [(" one", 1), (" two.", 1), (" three", 1), (" four", 1)]
    timed = timed_words(words, np.array([0.0, 0.3, 3.0, 6.0, 6.3]), 7.0)
    assert [text for _, _, text in timed] == ["one", "two.", "three", "four"]
    assert timed[1][1] < 2.0
    assert timed[2][0] > 4.0
