from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpool.policy.forecast import ForecastKeepAlive
from warmpool.policy.hazard import Window
from warmpool.policy.hybrid import HistogramKeepAlive
from warmpool.policy.keep_alive import Cost, FixedKeepAlive, KeepAlive, next_edge
from warmpool.policy.price import Price

Policy = TypeVar("Policy", bound=KeepAlive)
SMALL, LARGE = Cost(nbytes=100e6, start_s=0.2), Cost(nbytes=1e9, start_s=0.2)


def taught(policy: Policy, idle_s: list[float], key: str = "f") -> Policy:
    for one in idle_s:
        policy.observe(key, one)
    return policy


def test_a_fixed_keep_alive_learns_nothing():
    assert taught(FixedKeepAlive(600), [5.0] * 50).windows("f", SMALL) == (Window(0, 600),)


def test_the_next_change_of_somebody_idle():
    windows = (Window(10, 20), Window(50, math.inf))
    assert [next_edge(windows, idle_s) for idle_s in (0, 10, 20, 60)] == [
        (False, 10), (True, 20), (False, 50), (True, math.inf),
    ]  # fmt: skip
    assert next_edge((), 5) == (False, math.inf)


class TestHistogram:
    def test_without_history_a_worker_waits_for_the_whole_range(self):
        assert HistogramKeepAlive(7200).windows("f", SMALL) == (Window(0, 7200),)

    def test_the_windows_are_percentiles_with_margins(self):
        # All in the bin of the 30th minute: 0.9 × 30 min until 1.1 × 31 min, minus the start.
        (window,) = taught(HistogramKeepAlive(), [1810.0] * 20).windows("f", SMALL)
        assert window == pytest.approx((0.9 * 1800 - 0.2, 1.1 * 1860))

    def test_idle_times_all_over_the_range_are_no_pattern(self):
        idle_s = [60.0 * minute + 1 for minute in range(60)]
        assert taught(HistogramKeepAlive(3600), idle_s).windows("f", SMALL) == (Window(0, 3600),)

    def test_idle_times_beyond_the_range_are_forecast_from_the_latest(self):
        (window,) = taught(HistogramKeepAlive(3600), [10_000.0] * 5).windows("f", SMALL)
        assert window == pytest.approx((8500, 11_500))

    def test_what_comes_at_once_is_kept_from_the_start(self):
        (window,) = taught(HistogramKeepAlive(), [2.0] * 50).windows("f", SMALL)
        assert window == pytest.approx((0, 66))


class TestForecast:
    def test_who_comes_often_is_kept_and_who_comes_rarely_is_not(self):
        random = np.random.default_rng(1)
        policy = taught(ForecastKeepAlive(), random.exponential(60, 60).tolist(), "often")
        taught(policy, random.exponential(20_000, 60).tolist(), "rarely")
        assert next_edge(policy.windows("often", SMALL), 60)[0]
        assert not next_edge(policy.windows("rarely", SMALL), 60)[0]

    def test_a_large_worker_has_to_be_needed_more_often(self):
        policy = taught(ForecastKeepAlive(), np.random.default_rng(2).exponential(1500, 80).tolist())
        assert next_edge(policy.windows("f", SMALL), 300)[0]
        assert not next_edge(policy.windows("f", LARGE), 300)[0]

    def test_a_cold_start_that_is_worse_is_worth_more_memory(self):
        policy = taught(ForecastKeepAlive(), np.random.default_rng(2).exponential(1500, 80).tolist())
        dear = Cost(nbytes=LARGE.nbytes, start_s=LARGE.start_s, weight=10.0)
        assert next_edge(policy.windows("f", dear), 300)[0]

    def test_memory_that_is_overspent_becomes_dear(self):
        policy = ForecastKeepAlive()
        before = policy.price.value
        policy.account(600.0, 2e9, 1e9)
        assert policy.price.value > before


@given(st.lists(st.floats(5e8, 2e9), min_size=1, max_size=20), st.floats(-2, 2), st.floats(0.5, 2.0))
@settings(max_examples=30, deadline=None)
def test_what_is_spent_comes_to_what_is_allowed_and_hardly_more(allowed: list[float], scale: float, slope: float):
    """A load that answers to the price, whatever its size, and whatever the allowance does: two days."""
    price = Price(1e-12)
    for step in range(1440):
        kept = 1e9 * math.exp(scale) * (1e-12 / price.value) ** slope
        price.account(120.0, kept, allowed[step % len(allowed)])
    assert 0.85 * price.allowed < price.spent <= 1.03 * price.allowed
