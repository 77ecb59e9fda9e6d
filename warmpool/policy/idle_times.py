"""How long a function is idle between two pieces of work: a histogram on a logarithmic scale, and what is like it.

The scale is the point: idle times of functions lie between seconds and days, and what a decision needs is the same
relative precision everywhere. A function with a short history borrows from functions of like rates: its counts are
those of a Dirichlet posterior whose prior mean is what such functions do.

Source: Shahrad et al., "Serverless in the Wild", USENIX ATC 2020, section 4.2, for the histogram of idle times (there
of minutes, up to four hours, without a prior); Gelman et al., "Bayesian Data Analysis", section 3.4, for the posterior.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from warmpool.policy.hazard import Floats, Hazard
from warmpool.policy.peak import Peak, find_peak

_RATIO = 1.25
_FIRST_S, _LAST_S = 1.0, 2 * 86_400.0
EDGES_S: Floats = np.append(0.0, _FIRST_S * _RATIO ** np.arange(math.ceil(math.log(_LAST_S / _FIRST_S, _RATIO)) + 1))
"""float64 (bin,): where the bins begin, in seconds; the last has no end."""

BINS = len(EDGES_S)

_KEEP = 0.99
"""What an idle time still counts when the next one is known: about the last hundred are remembered."""

_RECENT = 16
_CLASS_BINS = 3
"""Functions whose usual idle times differ by less than so many bins, a factor of two, are alike."""

_UNINFORMED = 0.5
_PRIOR = 4.0
"""How many idle times of its own weigh as much as what functions like it do."""

_AROUND: Floats = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 3.0, 2.0, 1.0])
"""What bins around one weigh: those that are shorter or longer by up to 2.4 times."""

_DRAWN = 10.0
"""How many idle times in a bin weigh as much as those around it."""


def bin_of(idle_s: float) -> int:
    """The bin that an idle time falls into."""
    if idle_s < _FIRST_S:
        return 0
    return min(BINS - 1, int(math.log(idle_s / _FIRST_S) / math.log(_RATIO) + 1e-9) + 1)


class IdleTimes:
    """What is known of one function's idle times.

    Attributes:
        counts: float64 (bin,): how many fell into each bin; older ones count less.
        total: Their sum.
        seen: How many there ever were.
    """

    def __init__(self) -> None:
        self.counts: Floats = np.zeros(BINS)
        self.total = 0.0
        self.seen = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._mean_log = 0.0

    @property
    def usual_s(self) -> float | None:
        """The geometric mean of the latest idle times, in seconds; None: there was none."""
        return math.exp(self._mean_log) if self.seen else None

    @property
    def peak(self) -> Peak | None:
        """The narrow stretch that most of the latest fell into; None: there is none."""
        return find_peak(tuple(self._recent))

    def add(self, idle_s: float) -> None:
        """Remember one."""
        self.counts *= _KEEP
        self.counts[bin_of(idle_s)] += 1.0
        self.total = self.total * _KEEP + 1.0
        self._recent.append(idle_s)
        weight = max(1.0 / (self.seen + 1), 0.1)
        self._mean_log += weight * (math.log(max(idle_s, 0.1)) - self._mean_log)
        self.seen += 1


class Population:
    """What the idle times of functions of like rates are together.

    Functions are alike when the geometric means of their latest idle times are; those that have none yet are a kind of
    their own, which tells when a second request follows the first.
    """

    def __init__(self) -> None:
        self._counts: dict[int, Floats] = {}

    def add(self, times: IdleTimes, idle_s: float) -> None:
        """Remember an idle time of a function as it was known before."""
        kind = _kind(times)
        if kind not in self._counts:
            # Equal shares a bin: as many a decade everywhere, which is to know nothing.
            self._counts[kind] = np.full(BINS, _UNINFORMED)
        self._counts[kind][bin_of(idle_s)] += 1.0

    def shares(self, times: IdleTimes) -> Floats:
        """float64 (bin,), sum 1: what share of idle times falls into each bin for functions like this one."""
        counts = self._counts.get(_kind(times))
        return np.full(BINS, 1.0 / BINS) if counts is None else counts / counts.sum()


def hazard_of(times: IdleTimes, population: Population) -> Hazard:
    """The hazard of a function's next arrival, from its own idle times and those of functions like it.

    Args:
        times: Its own.
        population: Of all.
    """
    counts = times.counts + _PRIOR * population.shares(times)
    peak = times.peak
    if peak is None:
        return _smoothed(EDGES_S, counts, np.zeros(BINS))
    inside = (peak.end_s > EDGES_S) & (np.append(EDGES_S[1:], np.inf) > peak.start_s)
    mass = peak.share * times.total
    # The peak's own idle times leave the wide bins that they were counted in.
    counted = counts[inside].sum()
    counts[inside] *= max(0.0, counted - mass) / counted
    edges, split = _split(counts, peak)
    extra = np.zeros(len(edges))
    extra[int(np.searchsorted(edges, peak.start_s))] = mass
    return _smoothed(edges, split, extra)


def _smoothed(edges: Floats, counts: Floats, extra: Floats) -> Hazard:
    """Counts over the time at risk, drawn towards what is around where they are few.

    Those that ended within a bin were at risk for half of it. A hazard that has few counts is mostly chance, which
    would cut holes into the time that a worker is kept: each bin has that of its neighbourhood as its prior.

    Args:
        edges: float64 (bin,): where bins begin.
        counts: float64 (bin,): what fell into each.
        extra: float64 (bin,): what else did, in places that are known so well that nothing is drawn there.

    Source: the actuarial (life-table) estimator of the hazard; a gamma prior for its rates.
    """
    every = counts + extra
    survivors = np.cumsum(every[::-1])[::-1]
    at_risk_s = (survivors - every / 2.0) * np.append(np.diff(edges), 0.0)
    events = np.append(counts[:-1], 0.0)  # beyond the last edge nothing is expected
    around = np.convolve(events, _AROUND, "same") / np.convolve(at_risk_s, _AROUND, "same")
    rates = (events + _DRAWN) / (at_risk_s + _DRAWN / around)
    rates[-1] = 0.0
    rates[:-1] += extra[:-1] / at_risk_s[:-1]
    return Hazard(edges, rates)


def _split(counts: Floats, peak: Peak) -> tuple[Floats, Floats]:
    """Edges and counts with a bin more: the peak's own, with what else falls into it."""
    outer = EDGES_S[(peak.start_s > EDGES_S) | (peak.end_s < EDGES_S)]
    edges = np.union1d(outer, (peak.start_s, peak.end_s))
    # Spread evenly within a bin: what lies below an edge is a piecewise linear function of it.
    last = 2 * max(EDGES_S[-1], edges[-1])
    below = np.interp(np.append(edges, last), np.append(EDGES_S, last), np.append(0.0, np.cumsum(counts)))
    return edges, np.diff(below)


def _kind(times: IdleTimes) -> int:
    usual_s = times.usual_s
    return -1 if usual_s is None else bin_of(usual_s) // _CLASS_BINS
