"""Names on the bus do not collide."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Lane
from bus.subjects import function_of, function_stream, is_once, lane_of, matches, result, token, work

_word = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True)
_functions = st.lists(_word, min_size=1, max_size=4).map(".".join)


@given(one=_functions, two=_functions)
def test_two_functions_never_share_a_stream(one: str, two: str) -> None:
    assert (function_stream(one) == function_stream(two)) == (one == two)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", function_stream(one))


def test_a_dot_and_an_underscore_are_not_the_same() -> None:
    names = ["image.pre_process", "image_pre.process", "image.pre.process", "image_pre_process"]
    assert len({function_stream(name) for name in names}) == len(names)


@given(function=_functions)
def test_a_subject_of_work_is_the_functions_and_nobody_elses(function: str) -> None:
    subject = work(function, Lane.BATCH)
    assert matches(f"fn.{function}.*", subject)
    assert not matches(f"fn.{function}.more.*", subject)


def test_only_results_are_kept_once() -> None:
    assert is_once(result("r"))
    assert not is_once(token("r"))
    assert not is_once(work("speak", Lane.BATCH))


@pytest.mark.parametrize("lane", list(Lane))
def test_a_work_subject_tells_its_function_and_its_lane(lane: Lane) -> None:
    subject = work("image.encode", lane)
    assert (function_of(subject), lane_of(subject)) == ("image.encode", lane.value)
