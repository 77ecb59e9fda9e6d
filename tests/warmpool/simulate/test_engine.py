from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpool.policy.forecast import ForecastKeepAlive
from warmpool.policy.group_forecast import GroupForecast
from warmpool.policy.hybrid import HistogramKeepAlive
from warmpool.policy.keep_alive import FixedKeepAlive, KeepAlive
from warmpool.policy.price import Price
from warmpool.simulate.engine import Simulation
from warmpool.simulate.trace import Trace, share_workers, simple


def trace(*arrivals: tuple[float, int, float], duration_s: float = 1000.0, slots: int = 1) -> Trace:
    """Arrivals of (time, function, run time); workers have 1 byte and start in a second."""
    rows = sorted(arrivals)
    functions = 1 + max((row[1] for row in rows), default=0)
    return Trace(
        name="by hand",
        duration_s=duration_s,
        times_s=np.array([row[0] for row in rows], dtype=np.float64),
        functions=np.array([row[1] for row in rows], dtype=np.int64),
        run_s=np.array([row[2] for row in rows], dtype=np.float64),
        nbytes=np.ones(functions),
        start_s=np.ones(functions),
        slots=slots,
    )


def test_the_first_request_waits_for_the_start_and_the_next_does_not():
    report = Simulation(trace((0, 0, 5), (20, 0, 5)), FixedKeepAlive(600)).run()
    assert report.wait_s.tolist() == [1, 0]
    assert report.cold.tolist() == [True, False]


def test_memory_is_what_a_hand_adds_up():
    # Starts 0–1, runs 1–6, waits 6–20, runs 20–25, waits 25–125.
    report = Simulation(trace((0, 0, 5), (20, 0, 5)), FixedKeepAlive(100)).run()
    assert (report.starting, report.busy, report.idle) == (1, 10, 114)
    assert (report.starts, report.retired) == (1, 1)


def test_after_the_keep_alive_a_request_is_cold_again():
    report = Simulation(trace((0, 0, 5), (106.5, 0, 5)), FixedKeepAlive(100)).run()
    assert report.cold.tolist() == [True, True]


def test_requests_at_the_same_time_have_a_worker_each():
    report = Simulation(trace((0, 0, 5), (0.5, 0, 5)), FixedKeepAlive(0)).run()
    assert report.wait_s.tolist() == [1, 1]
    assert report.starts == report.retired == 2


def test_requests_share_a_worker_that_has_room():
    report = Simulation(trace((0, 0, 5), (0.5, 0, 5), (2, 0, 1), slots=4), FixedKeepAlive(0)).run()
    assert report.wait_s.tolist() == [1, 0.5, 0]
    assert report.starts == 1
    assert report.busy == 5


def test_functions_do_not_share_workers():
    report = Simulation(trace((0, 0, 5), (50, 1, 5)), FixedKeepAlive(600)).run()
    assert report.cold.tolist() == [True, True]


def test_functions_of_a_group_share_workers():
    apart = trace((0, 0, 5), (50, 1, 5), (100, 2, 5), slots=2)
    report = Simulation(share_workers(apart, 2), FixedKeepAlive(600)).run()
    assert report.cold.tolist() == [True, False, True]
    assert report.starts == 2


def test_functions_that_share_workers_are_forecast_apart():
    """Two timers, each of which takes minutes to come again, and never at a time that the other one would tell."""
    timers = [(700.0 * turn, 0, 1.0) for turn in range(60)] + [(1100.0 * turn + 333.0, 1, 1.0) for turn in range(38)]
    shared = share_workers(trace(*timers, duration_s=42_000), 2)
    price = 1 / 300
    apart = Simulation(shared, GroupForecast(Price(price))).run()
    together = Simulation(shared, ForecastKeepAlive(Price(price))).run()
    assert not apart.cold[60:].any()
    assert apart.cold.sum() < together.cold.sum()
    assert apart.idle < 0.85 * together.idle


def test_a_request_that_a_busy_worker_takes_first_is_not_cold():
    # The second waits for a start of a second, but the first is done after 0.2.
    report = Simulation(trace((0, 0, 0.5), (1.3, 0, 5)), FixedKeepAlive(600)).run()
    assert report.cold.tolist() == [True, False]
    assert report.wait_s[1] == pytest.approx(0.2)
    assert report.busy == pytest.approx(5.5)


def test_a_timer_is_ready_when_it_comes():
    arrivals = [(600.0 * turn, 0, 1.0) for turn in range(30)]
    policy = ForecastKeepAlive(Price(1 / 300))  # a worker, of one byte here, waits for what comes every five minutes
    report = Simulation(trace(*arrivals, duration_s=18_000), policy).run()
    assert not report.cold[15:].any()
    assert report.idle < 0.6 * 18_000  # the first ones are learnt from


POLICIES = {"fixed": FixedKeepAlive, "histogram": HistogramKeepAlive, "ours": GroupForecast}


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    arrival = st.tuples(st.floats(0, 900), st.integers(0, 3), st.floats(0.001, 400))
    apart = trace(*draw(st.lists(arrival, min_size=1, max_size=40)), slots=draw(st.integers(1, 3)))
    return share_workers(apart, draw(st.integers(1, 3)))


@given(traces(), st.sampled_from(sorted(POLICIES)))
@settings(max_examples=60, deadline=None)
def test_every_request_is_served_once_and_memory_adds_up(arrivals: Trace, policy: str):
    simulation = Simulation(arrivals, POLICIES[policy]())
    report = simulation.run()
    served = report.times_served == 1
    assert (report.times_served <= 1).all()
    # Who came longer ago than a start takes was served: nobody waits for ever.
    assert served[arrivals.times_s < arrivals.duration_s - 1.0].all()
    assert (report.wait_s[served] >= 0).all()
    assert (report.wait_s[served] <= 1.0 + 1e-9).all()
    # Each run within the trace is in the busy memory once, however many share a worker.
    ran = np.minimum(arrivals.times_s + report.wait_s + arrivals.run_s, arrivals.duration_s)
    seconds = np.nansum(np.where(served, ran - arrivals.times_s - report.wait_s, 0))
    assert report.busy <= seconds + 1e-6
    assert report.busy >= seconds / arrivals.slots - 1e-6
    assert report.idle >= 0
    assert report.alive == pytest.approx(report.idle + report.starting + report.busy)


def test_the_same_seed_gives_the_same_result():
    first, second = (
        Simulation(simple("bursts", functions=8, duration_s=20_000, seed=5), ForecastKeepAlive()).run() for _ in "ab"
    )
    assert np.array_equal(first.wait_s, second.wait_s)
    assert (first.idle, first.starts) == (second.idle, second.starts)


def test_what_the_shadow_allows_is_what_the_fixed_policy_spends():
    class Watched(FixedKeepAlive):
        allowed = 0.0

        def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
            self.allowed += seconds * allowed_nbytes

    policy: KeepAlive = Watched(600)
    arrivals = simple("poisson", functions=10, duration_s=40_000, seed=3, slots=1)
    report = Simulation(arrivals, policy).run()
    assert isinstance(policy, Watched)
    assert policy.allowed == pytest.approx(report.idle, rel=0.01)


@given(
    gaps=st.lists(st.integers(1, 40), min_size=1, max_size=20), run_s=st.integers(1, 9), keep_alive_s=st.integers(1, 30)
)
def test_requests_one_after_the_other_come_to_what_a_sum_says(gaps: list[int], run_s: int, keep_alive_s: int) -> None:
    """Starts take a second. Each gap is waited out, or the keep-alive is and the next request is cold."""
    came, now_s = [float(gaps[0])], gaps[0] + 1.0 + run_s
    for gap in gaps[1:]:
        came.append(now_s + gap)
        now_s += gap + (gap >= keep_alive_s) + run_s
    arrivals = trace(*((at_s, 0, run_s) for at_s in came), duration_s=now_s + 100.0)
    report = Simulation(arrivals, FixedKeepAlive(keep_alive_s)).run()
    cold = [True, *(gap >= keep_alive_s for gap in gaps[1:])]
    assert report.cold.tolist() == cold
    assert report.starts == report.starting == sum(cold)
    assert report.busy == run_s * len(gaps)
    assert report.idle == sum(min(gap, keep_alive_s) for gap in gaps[1:]) + keep_alive_s
