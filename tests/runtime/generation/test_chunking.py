from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.generation.chunking import PrefillPace


@pytest.mark.parametrize(
    ("token_s", "decode_s", "decoding", "tokens"),
    [
        (0.005, 0.05, 0, 512),  # nobody waits
        (0.005, 0.05, 3, 10),  # as long as a decode step
        (0.0001, 0.05, 3, 500),
        (0.00001, 0.05, 3, 512),
        (0.05, 0.01, 1, 8),  # but a prompt gets on
    ],
)
def test_a_piece_of_a_prompt_takes_as_long_as_a_decode_step(
    token_s: float, decode_s: float, decoding: int, tokens: int
) -> None:
    pace = PrefillPace(512)
    pace.prefilled(100, 100 * token_s)
    pace.decoded(decode_s)
    assert pace.chunk(decoding) == tokens


def test_before_anything_was_measured_pieces_are_small_where_somebody_waits() -> None:
    assert PrefillPace(512).chunk(0) == 512
    assert PrefillPace(512).chunk(1) == 8
    assert PrefillPace(4).chunk(1) == 4


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(1e-6, 10), st.floats(1e-6, 10))), st.integers(1, 2048))
def test_a_piece_is_never_empty_nor_larger_than_allowed(steps: list[tuple[int, float, float]], most: int) -> None:
    pace = PrefillPace(most)
    for tokens, prefill_s, decode_s in steps:
        pace.prefilled(tokens, prefill_s)
        pace.decoded(decode_s)
        for decoding in (0, 1, 8):
            assert 1 <= pace.chunk(decoding) <= most
    assert pace.chunk(0) == most


def test_the_pace_follows_a_machine_that_becomes_slower() -> None:
    pace = PrefillPace(512)
    pace.prefilled(10, 0.01)
    pace.decoded(0.1)
    assert pace.chunk(1) == 100
    for _ in range(40):
        pace.prefilled(10, 0.05)
    assert pace.chunk(1) in (19, 20)
