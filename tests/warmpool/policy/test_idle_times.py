from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpool.policy.idle_times import BINS, EDGES_S, IdleTimes, Population, bin_of, hazard_of
from warmpool.policy.peak import find_peak


def told(idle_s: list[float], population: Population | None = None) -> tuple[IdleTimes, Population]:
    times, population = IdleTimes(), population or Population()
    for one in idle_s:
        population.add(times, one)
        times.add(one)
    return times, population


@given(st.floats(0, 1e6))
def test_every_idle_time_falls_into_the_bin_that_holds_it(idle_s: float):
    index = bin_of(idle_s)
    assert EDGES_S[index] <= idle_s * (1 + 1e-6)
    assert index == BINS - 1 or idle_s < EDGES_S[index + 1] * (1 + 1e-6)


def test_arrivals_that_know_nothing_of_each_other_have_the_same_hazard_all_the_time():
    rate = 1 / 120
    times, population = told(np.random.default_rng(7).exponential(1 / rate, 3000).tolist())
    hazard = hazard_of(times, population)
    seen = [hazard.at(idle_s) / rate for idle_s in (10, 30, 60, 120, 200)]
    assert seen == pytest.approx([1.0] * 5, abs=0.35)


def test_idle_times_with_a_long_tail_have_a_hazard_that_falls():
    times, population = told(np.random.default_rng(3).lognormal(3, 2, 2000).tolist())
    hazard = hazard_of(times, population)
    assert hazard.at(5) > 3 * hazard.at(100) > 9 * hazard.at(2000)


def test_a_timer_is_waited_for_only_when_it_is_due():
    times, population = told([3600.0 + wobble for wobble in (0.0, 1.0, -2.0, 0.5, 1.5, -1.0, 0.0, 0.7)])
    *at_once, due = hazard_of(times, population).windows(1 / 600)
    assert 3590 < due.start_s < 3600 < due.end_s < 3610
    assert sum(window.end_s - window.start_s for window in at_once) < 30  # little is known yet of what just came


def test_a_timer_that_misses_a_turn_now_and_then_is_still_one():
    times, population = told([900.0, 900.4, 1800.0, 899.8, 900.1, 900.0, 1800.2, 900.3])
    windows = hazard_of(times, population).windows(1 / 600)
    assert any(window.start_s < 900 < window.end_s for window in windows)
    assert not any(window.start_s < 600 < window.end_s for window in windows)


def test_a_rare_function_is_expected_as_those_like_it_are():
    population = Population()
    for seed in range(30):
        gaps = np.random.default_rng(seed).normal(1000, 100, 10).clip(1)
        told(gaps.tolist(), population)
    newcomer, _ = told([1010.0], population)
    alone, nobody = told([1010.0])
    informed, blind = hazard_of(newcomer, population), hazard_of(alone, nobody)
    assert informed.at(1000) > 3 * informed.at(200)
    assert blind.at(1000) < 3 * blind.at(200)


def test_nothing_is_expected_of_nobody_beyond_all_that_was_ever_seen():
    times, population = told([5.0] * 20)
    assert hazard_of(times, population).at(1e7) == 0.0


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_a_hazard_is_a_number_from_nothing_up_whatever_came(idle_s: list[float]):
    hazard = hazard_of(*told(idle_s))
    assert np.isfinite(hazard.rates).all()
    assert (hazard.rates >= 0).all()
    assert (np.diff(hazard.starts_s) > 0).all()


@given(st.lists(st.floats(1, 1e5), min_size=4, max_size=16))
def test_a_peak_holds_the_share_that_it_says(idle_s: list[float]):
    peak = find_peak(idle_s)
    if peak is not None:
        assert peak.share == sum(peak.start_s <= one <= peak.end_s for one in idle_s) / len(idle_s)
        assert peak.share >= 0.5


def test_three_idle_times_are_no_timer_yet():
    assert find_peak([60.0, 60.0, 60.0]) is None
    assert find_peak([60.0, 60.0, 60.0, 60.0]) is not None


def test_scattered_idle_times_have_no_peak():
    assert find_peak([10.0, 20.0, 40.0, 80.0, 160.0, 320.0]) is None
