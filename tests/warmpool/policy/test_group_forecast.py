"""A group's worker waits for each of its functions in each lane, by their own pasts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpool.policy.group_forecast import MOST_SOURCES, GroupForecast
from warmpool.policy.hazard import Window
from warmpool.policy.keep_alive import Cost, next_edge
from warmpool.policy.price import Price

COST = Cost(nbytes=100e6, start_s=0.2)
KEY = ("encode", 0)
DEAR = Price(1 / (300.0 * 100e6))
"""A worker waits for what comes every five minutes."""

Arrivals = list[tuple[float, str]]


def taught(arrivals: Arrivals, price: Price | None = None) -> GroupForecast:
    policy = GroupForecast(price)
    for now_s, source in sorted(arrivals):
        policy.arrived("encode", source, now_s)
    return policy


def warm_at(policy: GroupForecast, from_s: float, now_s: float) -> bool:
    """Whether a worker is warm at a time for whoever asks at an earlier one, idle since then."""
    return next_edge(policy.windows(KEY, COST, 0.0, from_s), now_s - from_s)[0]


def test_two_timers_that_share_a_worker_are_told_apart() -> None:
    every = {"first": 700.0, "second": 1100.0}
    arrivals = [(period * turn, name) for name, period in every.items() for turn in range(1, 40)]
    policy, last_s = taught(arrivals, DEAR), max(arrivals)[0]
    assert last_s == 39 * 1100.0  # the other one has ended long before: only this one's is to come
    assert warm_at(policy, last_s, 44_000)
    assert not warm_at(policy, last_s, 43_400)
    assert not warm_at(policy, last_s, 43_800)
    policy.arrived("encode", "first", last_s)  # here it is again
    assert warm_at(policy, last_s, 43_600)
    assert not warm_at(policy, last_s, 43_400)
    assert warm_at(policy, last_s, 44_000)


def test_a_timer_beside_one_that_comes_by_chance_is_still_met() -> None:
    random = np.random.default_rng(3)
    chance = np.cumsum(random.exponential(5_000.0, 60))
    timer = np.arange(1, 60) * 3_600.0
    arrivals = [(float(at), "chance") for at in chance if at < timer[-1]] + [(float(at), "timer") for at in timer]
    policy, last_s = taught(arrivals, DEAR), float(timer[-1])
    assert warm_at(policy, last_s, last_s + 3_600.0)
    assert not warm_at(policy, last_s, last_s + 1_800.0)
    mixed = taught([(now_s, "all") for now_s, _ in arrivals], DEAR)  # as if nobody told who came
    assert not warm_at(mixed, last_s, last_s + 3_600.0)


arrival = st.tuples(st.floats(0, 50_000), st.sampled_from(["a", "b", "c"]))
sources = st.lists(arrival, min_size=1, max_size=60, unique_by=lambda row: row[0])


@given(sources, st.floats(0, 5_000), st.floats(0, 20_000))
@settings(max_examples=60, deadline=None)
def test_a_group_is_warm_whenever_one_of_its_sources_alone_would_keep_it(
    arrivals: Arrivals, after_s: float, ahead_s: float
) -> None:
    """What more there is to wait for never ends the waiting: hazards of independent arrivals add up."""
    policy, now_s = taught(arrivals), max(arrivals)[0] + after_s
    together = policy.rate(KEY, 0.0, now_s)
    names = {name for _, name in arrivals}
    alone = [policy.hazard(("source", "encode", name)) for name in names]
    ages = [now_s - max(at for at, name in arrivals if name == one) for one in names]
    rates = [hazard.at(age_s) for hazard, age_s in zip(alone, ages, strict=True)]
    assert together == pytest.approx(sum(rates))
    least = policy.price.value * COST.nbytes
    for hazard, age_s in zip(alone, ages, strict=True):
        if next_edge(hazard.after(age_s).windows(least), ahead_s)[0]:
            assert warm_at(policy, now_s, now_s + ahead_s)


@given(sources, st.floats(0, 1e6))
@settings(max_examples=40, deadline=None)
def test_when_time_began_makes_no_difference(arrivals: Arrivals, offset_s: float) -> None:
    arrivals = [(round(now_s), name) for now_s, name in arrivals]  # else the offset takes digits from the differences
    now_s, offset_s = max(arrivals)[0] + 60.0, round(offset_s)
    later = taught([(at + offset_s, name) for at, name in arrivals])
    assert later.windows(KEY, COST, 60.0, now_s + offset_s) == taught(arrivals).windows(KEY, COST, 60.0, now_s)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=600))
@settings(max_examples=30, deadline=None)
def test_however_many_sources_there_are_little_is_remembered(names: list[int]) -> None:
    policy = taught([(float(number), str(name)) for number, name in enumerate(names)])
    assert len(policy._known) <= MOST_SOURCES
    assert len(policy._latest["encode"]) <= MOST_SOURCES
    # Those that came last are the ones that are known.
    last = list(dict.fromkeys(str(name) for name in reversed(names)))[:MOST_SOURCES]
    assert set(policy._latest["encode"]) == set(last)


def test_a_deployer_s_keep_alive_is_kept_whatever_is_expected() -> None:
    policy = taught([(0.0, "a")], Price(1.0))
    assert policy.windows(KEY, COST, 0.0, 1.0) == ()
    policy.keep_at_least("encode", 900.0)
    assert policy.windows(KEY, COST, 0.0, 1.0) == (Window(0.0, 900.0),)


def test_higher_levels_have_idle_times_of_their_own() -> None:
    policy = taught([(float(turn * 50), "a") for turn in range(40)])
    for _ in range(40):
        policy.observe(("encode", 0), 49.0)  # which its source's arrivals tell better
        policy.observe(("encode", 1), 40_000.0)
    assert next_edge(policy.windows(("encode", 0), COST, 0.0, 1951.0), 40.0)[0]
    assert not next_edge(policy.windows(("encode", 1), COST, 0.0, 1951.0), 400.0)[0]
