from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpool.policy.hazard import Hazard, Window

STEADY = Hazard(np.array([0.0]), np.array([0.01]))


@st.composite
def hazards(draw: st.DrawFn) -> Hazard:
    widths = draw(st.lists(st.floats(0.1, 1000), min_size=1, max_size=8))
    rates = draw(st.lists(st.floats(0, 2), min_size=len(widths), max_size=len(widths)))
    return Hazard(np.cumsum([0.0, *widths[1:]]), np.array(rates))


def test_a_steady_rate_never_changes():
    assert STEADY.at(0) == STEADY.at(1e9) == 0.01


@pytest.mark.parametrize(("start_s", "end_s"), [(0, 10), (50, 250), (7, 7)])
def test_the_chance_of_a_steady_rate_is_exponential(start_s: float, end_s: float):
    assert STEADY.chance(start_s, end_s) == pytest.approx(1 - math.exp(-0.01 * (end_s - start_s)))


@given(hazards(), st.floats(0, 3000), st.floats(0, 3000))
def test_what_is_seen_later_is_the_same_later(hazard: Hazard, idle_s: float, more_s: float):
    edge = np.isclose(hazard.starts_s, idle_s + more_s).any()
    assert edge or hazard.after(idle_s).at(more_s) == hazard.at(idle_s + more_s)


@given(hazards(), hazards(), st.floats(0, 5000))
def test_two_kinds_of_arrivals_come_as_often_as_both(one: Hazard, other: Hazard, idle_s: float):
    assert (one + other).at(idle_s) == pytest.approx(one.at(idle_s) + other.at(idle_s))


@given(hazards(), st.floats(0.001, 2), st.floats(0, 5000))
def test_a_window_is_open_exactly_while_the_hazard_is_high_enough(hazard: Hazard, least: float, idle_s: float):
    windows = hazard.windows(least)
    inside = any(window.start_s <= idle_s < window.end_s for window in windows)
    assert inside == (hazard.at(idle_s) >= least)


@given(hazards(), st.floats(0.001, 2), st.floats(0, 50), st.floats(0, 200))
def test_windows_are_apart_and_in_order(hazard: Hazard, least: float, lead_s: float, bridge_s: float):
    windows = hazard.windows(least, lead_s=lead_s, bridge_s=bridge_s)
    assert all(window.start_s < window.end_s for window in windows)
    assert all(before.end_s + bridge_s < after.start_s for before, after in itertools.pairwise(windows))


def test_a_window_opens_early_enough_for_a_start_to_be_done():
    hazard = Hazard(np.array([0.0, 100.0, 110.0]), np.array([0.0, 1.0, 0.0]))
    assert hazard.windows(0.5, lead_s=3.0) == (Window(97.0, 110.0),)


def test_nothing_ends_to_start_again_soon():
    hazard = Hazard(np.array([0.0, 100.0, 130.0, 200.0]), np.array([1.0, 0.0, 1.0, 0.0]))
    assert hazard.windows(0.5, bridge_s=30.0) == (Window(0.0, 200.0),)
    assert hazard.windows(0.5, bridge_s=29.0) == (Window(0.0, 100.0), Window(130.0, 200.0))


@given(hazards(), st.floats(0.01, 1))
def test_no_choice_of_when_to_be_warm_is_better_than_the_windows(hazard: Hazard, price: float):
    """By trying all: expected misses and price × time spent waiting, over every subset of the steps."""
    starts = hazard.starts_s
    widths = np.append(np.diff(starts), 0.0)
    passed = np.append(0.0, np.cumsum(hazard.rates * widths))[:-1]
    # Within a step the time to the arrival is exponential: what is lost cold, and what is spent warm.
    lost = np.exp(-passed) * -np.expm1(-hazard.rates * widths)
    spent = np.exp(-passed) * np.where(
        hazard.rates > 0, -np.expm1(-hazard.rates * widths) / np.where(hazard.rates > 0, hazard.rates, 1), widths
    )
    best = min(
        sum(price * spent[step] if warm else lost[step] for step, warm in enumerate(choice))
        for choice in itertools.product((False, True), repeat=len(starts))
    )
    windows = hazard.windows(price)
    ours = sum(
        price * spent[step] if any(one.start_s <= start < one.end_s for one in windows) else lost[step]
        for step, start in enumerate(starts)
    )
    assert ours == pytest.approx(best)
