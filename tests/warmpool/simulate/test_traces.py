from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from warmpool.simulate.azure import azure, burr
from warmpool.simulate.trace import DAY_S, arrivals, bursts, by_daylight, lognormal, periodic, poisson, simple


def variation(times_s: np.ndarray) -> float:
    gaps = np.diff(times_s)
    return float(gaps.std() / gaps.mean())


@pytest.mark.parametrize(
    ("gaps", "expected"), [(poisson, 1.0), (periodic(), 0.0), (periodic(0.05), 0.05), (lognormal(2.0), 2.0)]
)
def test_idle_times_vary_as_their_kind_does(gaps: object, expected: float):
    times = arrivals(np.random.default_rng(1), gaps, 1.0, 40_000)  # type: ignore[arg-type]
    assert len(times) == pytest.approx(40_000, rel=0.05)
    assert variation(times) == pytest.approx(expected, rel=0.2, abs=1e-9)


def test_bursts_come_close_together_and_far_apart():
    gaps = bursts(np.random.default_rng(2), 100_000)
    assert gaps.mean() == pytest.approx(1.0, rel=0.05)
    assert np.median(gaps) < 0.05


def test_by_day_more_comes_than_by_night():
    times = by_daylight(np.random.default_rng(3).uniform(0, DAY_S, 20_000), DAY_S, 0.9)
    by_hour = np.histogram(times, bins=24, range=(0, DAY_S))[0]
    assert by_hour[11:13].mean() > 10 * by_hour[[0, 23]].mean()
    assert len(times) == by_hour.sum()


def test_memory_is_distributed_as_it_was_published():
    drawn = burr(np.random.default_rng(4), 20_000)
    published = stats.burr12(11.652, 0.221, scale=107.083)
    assert np.percentile(drawn, [10, 50, 90]) == pytest.approx(published.ppf([0.1, 0.5, 0.9]), rel=0.03)


def test_rates_of_the_azure_trace_are_as_they_were_published():
    trace = azure(functions=400, duration_s=DAY_S, seed=1)
    came = np.bincount(trace.functions, minlength=400)
    assert (came <= 24).mean() == pytest.approx(0.45, abs=0.05)
    assert (came <= 1_440).mean() == pytest.approx(0.81, abs=0.05)


def test_the_azure_trace_is_in_order_and_within_its_time():
    trace = azure(functions=40, duration_s=DAY_S, seed=2)
    assert (np.diff(trace.times_s) >= 0).all()
    assert trace.times_s[0] >= 0
    assert trace.times_s[-1] < DAY_S
    assert (trace.run_s > 0).all()


@pytest.mark.parametrize("kind", ["poisson", "bursts", "diurnal"])
def test_the_same_seed_gives_the_same_trace(kind: str):
    first, second, other = (simple(kind, functions=5, duration_s=DAY_S, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.times_s, second.times_s)
    assert not np.array_equal(first.times_s[:10], other.times_s[:10])
