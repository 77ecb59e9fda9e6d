"""Arrivals to replay, and generators of the simple kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from warmpool.policy.hazard import Floats

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What arrives, in the order of time.

    Attributes:
        name: Of the kind.
        duration_s: How long it goes on, in seconds.
        times_s: float64 (arrival,): when each request arrives, ascending.
        functions: int64 (arrival,): which function it is for.
        run_s: float64 (arrival,): how long it runs.
        nbytes: float64 (group,): memory of one worker.
        start_s: float64 (group,): how long a worker takes to start.
        slots: How many requests one worker runs at once.
        groups: int64 (function,): whose workers serve each function; None: each has workers of its own.
    """

    name: str
    duration_s: float
    times_s: Floats
    functions: NDArray[np.int64]
    run_s: Floats
    nbytes: Floats
    start_s: Floats
    slots: int = 1
    groups: NDArray[np.int64] | None = None


Gaps = Callable[[np.random.Generator, int], Floats]
"""Draws so many idle times with a mean of 1."""


def poisson(random: np.random.Generator, count: int) -> Floats:
    """Arrivals that know nothing of each other."""
    return random.exponential(1.0, count)


def bursts(random: np.random.Generator, count: int, size: float = 20.0, share: float = 0.02) -> Floats:
    """A burst of about `size` arrivals, close together, then a long pause.

    Args:
        random: Where chance comes from.
        count: How many.
        size: Arrivals of a burst, on average.
        share: Of the mean idle time: how far apart they are within a burst.
    """
    pause = size - (size - 1) * share
    return random.exponential(np.where(random.random(count) < 1 / size, pause, share))


def lognormal(variation: float) -> Gaps:
    """Idle times with a long tail, of any coefficient of variation."""
    sigma2 = np.log1p(variation**2)
    return lambda random, count: random.lognormal(-sigma2 / 2, np.sqrt(sigma2), count)


def periodic(jitter: float = 0.0) -> Gaps:
    """A timer; with a share of its period as the standard deviation."""
    return lambda random, count: np.maximum(0.0, 1.0 + jitter * random.standard_normal(count))


def arrivals(random: np.random.Generator, gaps: Gaps, rate_per_s: float, duration_s: float) -> Floats:
    """Times of arrivals of one function: float64 (arrival,), ascending.

    The first comes anywhere within its idle time, as for whoever looks at a process that has always gone on.
    """
    expected = rate_per_s * duration_s
    count = int(expected + 6 * np.sqrt(expected) + 16)
    drawn = gaps(random, count) / rate_per_s
    times = np.cumsum(drawn) - random.random() * drawn[0]
    while times[-1] < duration_s:
        times = np.append(times, times[-1] + np.cumsum(gaps(random, count) / rate_per_s))
    kept: Floats = times[times < duration_s]
    return kept


def by_daylight(times_s: Floats, duration_s: float, depth: float, phase: float = 0.0) -> Floats:
    """The same arrivals, denser by day than by night.

    Args:
        times_s: float64 (arrival,): of a process without a time of day.
        duration_s: How long it goes on.
        depth: 0 is no difference; 1: nothing at the darkest hour.
        phase: Share of a day that the darkest hour is away from midnight.
    """
    grid = np.linspace(0.0, duration_s, 1441)
    intensity = 1.0 - depth * np.cos(2 * np.pi * (grid / DAY_S - phase))
    passed = np.append(0.0, np.cumsum((intensity[1:] + intensity[:-1]) / 2))
    return np.interp(times_s, passed * duration_s / passed[-1], grid)


def share_workers(trace: Trace, count: int) -> Trace:
    """The same arrivals, but every so many functions share workers, which hold as much as the largest of them.

    Args:
        trace: In which none do.
        count: How many functions a group has.
    """
    first = np.arange(0, len(trace.nbytes), count)
    return replace(
        trace,
        groups=np.arange(len(trace.nbytes)) // count,
        nbytes=np.maximum.reduceat(trace.nbytes, first),
        start_s=np.maximum.reduceat(trace.start_s, first),
    )


def merged(
    name: str, duration_s: float, times: list[Floats], run_s: list[Floats], workers: list[Floats], slots: int
) -> Trace:
    """One trace of the arrivals of several functions.

    Args:
        name: Of the kind.
        duration_s: How long it goes on.
        times: Arrivals by function.
        run_s: Seconds that each of them runs, by function.
        workers: float64 (2,) by function: bytes of a worker and seconds of its start.
        slots: How many requests one worker runs at once.
    """
    every = np.concatenate(times)
    order = np.argsort(every, kind="stable")
    functions = np.repeat(np.arange(len(times)), [len(one) for one in times])
    memory = np.array(workers)
    return Trace(
        name=name,
        duration_s=duration_s,
        times_s=every[order],
        functions=functions[order],
        run_s=np.concatenate(run_s)[order],
        nbytes=memory[:, 0],
        start_s=memory[:, 1],
        slots=slots,
    )


def simple(name: str, *, functions: int, duration_s: float, seed: int, slots: int = 4) -> Trace:
    """A trace of one of the simple kinds: `poisson`, `bursts` or `diurnal`.

    Functions have rates between once a day and once in ten seconds, evenly on a logarithmic scale.

    Args:
        name: The kind.
        functions: How many.
        duration_s: How long.
        seed: The same seed gives the same trace.
        slots: How many requests one worker runs at once; as a function has by default.
    """
    random = np.random.default_rng(seed)
    kinds: dict[str, Gaps] = {"poisson": poisson, "bursts": bursts, "diurnal": poisson}
    gaps = kinds[name]
    rates = 10.0 ** random.uniform(np.log10(1 / DAY_S), np.log10(1 / 10.0), functions)
    times = [arrivals(random, gaps, rate, duration_s) for rate in rates]
    if name == "diurnal":
        times = [by_daylight(one, duration_s, 0.9, random.normal(0.0, 0.05)) for one in times]
    runs = [random.lognormal(-0.5, 1.0, len(one)) for one in times]
    workers = [np.array([nbytes, start_of(nbytes)]) for nbytes in random.lognormal(np.log(300e6), 0.6, functions)]
    return merged(name, duration_s, times, runs, workers, slots)


def start_of(nbytes: float) -> float:
    """Seconds that a worker of so many bytes takes to start: a fork, a connection, and its bytes at 1 GB/s."""
    return 0.05 + nbytes / 1e9
