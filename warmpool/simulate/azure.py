"""A trace of the shape of Azure Functions' production load.

The public trace itself is not part of this project; the generator has what was published about it:

- 45 % of the applications are invoked once an hour or less on average, 81 % once a minute or less, and rates span eight
  orders of magnitude (section 3.3, figure 5);
- triggers: 13.4 % of applications have timers only and 29.2 % have a timer (figure 3); timers alone fire at equal
  times, some others are nearly periodic, and 40 % of all have a coefficient of variation above 1 (figure 6);
- invocations have a constant base of about half, the rest follows the time of day (figure 4);
- average run times of functions are log-normal with mu -0.38 and sigma 2.36, in seconds (figure 7);
- memory of applications is Burr distributed with c 11.652, k 0.221 and lambda 107.083, in MB (figure 8).

Between the published points the distribution of rates is straight on a logarithmic scale.

Source: Shahrad et al., "Serverless in the Wild: Characterizing and Optimizing the Serverless Workload at a Large Cloud
Provider", USENIX ATC 2020, section 3.
"""

from __future__ import annotations

import numpy as np

from warmpool.policy.hazard import Floats
from warmpool.simulate.trace import (
    DAY_S,
    Trace,
    arrivals,
    by_daylight,
    lognormal,
    merged,
    periodic,
    poisson,
    start_of,
)

_SHARES = (0.0, 0.45, 0.81, 1.0)
_PER_DAY = (1.0, 24.0, 1_440.0, 1e8)

_TIMERS_ONLY, _ANY_TIMER = 0.134, 0.292
_PERIODS_S = np.array([60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400], dtype=np.float64)
"""What schedules are set to, by people."""

_NEARLY_PERIODIC, _VARIABLE = 0.10, 0.5
_DAYLIGHT = 0.5
ONE_INSTANCE = 1_000_000
"""An application is in memory or is not, however many of its requests run: as in the paper's own simulation."""

_LONGEST_RUN_S = 300.0
"""Azure's own limit of a run, as it is set by default."""


def azure(
    *, functions: int, duration_s: float, seed: int, most_per_day: float = 4_320.0, slots: int = ONE_INSTANCE
) -> Trace:
    """A trace of so many applications.

    Args:
        functions: How many applications.
        duration_s: How long.
        seed: The same seed gives the same trace.
        most_per_day: Applications that are invoked more often are replayed as if they were invoked so often: their
            other requests would find a warm worker under any policy, and would take the simulator years.
        slots: How many requests one worker runs at once.
    """
    random = np.random.default_rng(seed)
    # One from each equal share of the distribution: few applications have its shape, too.
    shares = (random.permutation(functions) + random.random(functions)) / functions
    per_day = np.minimum(10.0 ** np.interp(shares, _SHARES, np.log10(_PER_DAY)), most_per_day)
    times = [_application(random, rate / DAY_S, duration_s) for rate in per_day]
    # A day's mean run time of an application that is always busy would be more than its requests are apart.
    average_s = np.minimum(random.lognormal(-0.38, 2.36, functions), _LONGEST_RUN_S)
    runs = [np.minimum(random.exponential(mean_s, len(one)), _LONGEST_RUN_S) for mean_s, one in zip(
        average_s, times, strict=True
    )]  # fmt: skip
    workers = [np.array([nbytes, start_of(nbytes)]) for nbytes in burr(random, functions) * 1e6]
    return merged("azure", duration_s, times, runs, workers, slots)


def burr(
    random: np.random.Generator, count: int, c: float = 11.652, k: float = 0.221, scale: float = 107.083
) -> Floats:
    """Draws from the Burr type XII distribution, by its inverse: F(x) = 1 − (1 + (x / scale)^c)^−k."""
    survival = 1.0 - random.random(count)
    return np.minimum(scale * (survival ** (-1.0 / k) - 1.0) ** (1.0 / c), 4_000.0)


def _application(random: np.random.Generator, rate_per_s: float, duration_s: float) -> Floats:
    kind = random.random()
    if kind < _TIMERS_ONLY:
        return _timer(random, rate_per_s, duration_s)
    if kind < _ANY_TIMER:
        timer = _timer(random, rate_per_s / 2, duration_s)
        return np.sort(np.append(timer, _requests(random, rate_per_s / 2, duration_s)))
    return _requests(random, rate_per_s, duration_s)


def _timer(random: np.random.Generator, rate_per_s: float, duration_s: float) -> Floats:
    period_s = _PERIODS_S[np.argmin(np.abs(np.log(_PERIODS_S * rate_per_s)))]
    return arrivals(random, periodic(), 1.0 / period_s, duration_s)


def _requests(random: np.random.Generator, rate_per_s: float, duration_s: float) -> Floats:
    kind = random.random()
    if kind < _NEARLY_PERIODIC:
        return arrivals(random, periodic(jitter=0.05), rate_per_s, duration_s)
    # Half of what is left knows nothing of the past; the idle times of the rest vary by 1 to 10 times their mean.
    gaps = lognormal(10.0 ** random.random()) if kind > 1 - _VARIABLE else poisson
    return by_daylight(arrivals(random, gaps, rate_per_s, duration_s), duration_s, _DAYLIGHT, random.normal(0.0, 0.1))
