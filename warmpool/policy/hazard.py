"""How likely the next arrival is, by how long it has been quiet; and when that is worth a warm worker.

While a worker waits for a function that has been quiet for t seconds, each further second costs memory and saves a cold
start with probability h(t), the hazard of the function's idle times. The least sum of memory and cold starts is reached
by being warm exactly while h(t) × cost of a cold start ÷ memory is above one price, the same for all functions.

Source: the pointwise minimum of the Lagrangian of "fewest cold starts for a given memory × time", which is a sum over
instants because being warm at one does not bind the next. It is greedy-dual caching (Fuerst and Sharma, "FaasCache",
ASPLOS 2021: frequency × cost ÷ size) with a frequency that depends on how long ago the last request was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Window(NamedTuple):
    """A stretch of idle time.

    Attributes:
        start_s: Its beginning, in seconds since the last work ended.
        end_s: Its end; infinite where there is none.
    """

    start_s: float
    end_s: float


def with_window(windows: tuple[Window, ...], more: Window) -> tuple[Window, ...]:
    """The windows and one more, which those that it touches become a part of."""
    touched = [one for one in windows if one.start_s <= more.end_s and one.end_s >= more.start_s]
    joined = Window(
        min(one.start_s for one in (more, *touched)),
        max(one.end_s for one in (more, *touched)),
    )
    return tuple(sorted((*(one for one in windows if one not in touched), joined)))


@dataclass(frozen=True, eq=False)
class Hazard:
    """A step function of idle time.

    Attributes:
        starts_s: float64 (step,): where each step begins, ascending from 0, in seconds of idle time.
        rates: float64 (step,): arrivals a second while idle so long, given that there was none before; the last step
            has no end.
    """

    starts_s: Floats
    rates: Floats

    def at(self, idle_s: float) -> float:
        """Arrivals a second after so many idle seconds."""
        return float(self.rates[max(0, int(np.searchsorted(self.starts_s, idle_s, side="right")) - 1)])

    def after(self, idle_s: float) -> Hazard:
        """The same function, seen from somebody who has been idle for so long."""
        first = max(0, int(np.searchsorted(self.starts_s, idle_s, side="right")) - 1)
        return Hazard(np.maximum(self.starts_s[first:] - idle_s, 0.0), self.rates[first:])

    def __add__(self, other: Hazard) -> Hazard:
        """Of two independent kinds of arrivals together."""
        starts = np.union1d(self.starts_s, other.starts_s)
        return Hazard(starts, self._on(starts) + other._on(starts))

    def chance(self, start_s: float, end_s: float) -> float:
        """Probability of an arrival between two idle times, given that there was none before the first."""
        ends = np.append(self.starts_s[1:], np.inf)
        inside = np.clip(np.minimum(ends, end_s) - np.maximum(self.starts_s, start_s), 0.0, None)
        expected = np.sum(inside[self.rates > 0] * self.rates[self.rates > 0])
        return float(-np.expm1(-expected))

    def windows(self, least_rate: float, *, lead_s: float = 0.0, bridge_s: float = 0.0) -> tuple[Window, ...]:
        """When the hazard is at least so high.

        Args:
            least_rate: In arrivals a second.
            lead_s: How much earlier each window begins: what a start takes.
            bridge_s: Gaps between windows that are no longer than this are filled: it is not worth going and coming.
        """
        warm = self.rates >= least_rate
        edges = self.starts_s[np.flatnonzero(warm[1:] != warm[:-1]) + 1].tolist()
        if warm[0]:
            edges.insert(0, 0.0)
        if warm[-1]:
            edges.append(math.inf)
        found: list[Window] = []
        for from_s, end_s in zip(edges[::2], edges[1::2], strict=True):
            start_s = max(0.0, from_s - lead_s)
            if found and start_s - found[-1].end_s <= bridge_s:
                found[-1] = Window(found[-1].start_s, end_s)
            else:
                found.append(Window(start_s, end_s))
        return tuple(found)

    def _on(self, starts: Floats) -> Floats:
        rates: NDArray[Any] = self.rates[np.searchsorted(self.starts_s, starts, side="right") - 1]
        return rates


NEVER = Hazard(np.zeros(1), np.zeros(1))
"""Of what never comes."""
