"""Numbers in words against num2words, which SmolVLM's processor takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some
from num2words import num2words  # type: ignore[import-untyped]

from runtime.multimodal.number_words import in_words


def test_every_number_of_frames_is_said_as_the_reference_says_it() -> None:
    assert [in_words(number) for number in range(1200)] == [num2words(number) for number in range(1200)]


@given(some.integers(0, 999_999))
def test_larger_numbers_too(number: int) -> None:
    assert in_words(number) == num2words(number)
