"""What came of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warmpool.policy.hazard import Floats
from warmpool.simulate.meter import Meter
from warmpool.simulate.trace import Trace


@dataclass(kw_only=True, eq=False)
class Report:
    """One policy against one trace.

    Attributes:
        trace: What was replayed.
        wait_s: float64 (arrival,): how long each request waited for a worker; NaN: it was still waiting at the end.
        cold: bool (arrival,): whether it was served by a worker that was not ready when it came.
        times_served: int64 (arrival,): how often it was given to a worker: once, or not before the end.
        idle: Byte-seconds of workers that waited.
        starting: Byte-seconds of workers that started.
        busy: Byte-seconds of workers that ran.
        alive: Byte-seconds of workers from their start to their end.
        starts: Workers that were started.
        retired: Workers that were ended.
    """

    trace: Trace
    wait_s: Floats
    cold: NDArray[np.bool_]
    times_served: NDArray[np.int64]
    idle: float = 0.0
    starting: float = 0.0
    busy: float = 0.0
    alive: float = 0.0
    starts: int = 0
    retired: int = 0

    @classmethod
    def empty(cls, trace: Trace) -> Report:
        """Before anything has arrived."""
        count = len(trace.times_s)
        return cls(
            trace=trace,
            wait_s=np.full(count, np.nan),
            cold=np.ones(count, dtype=np.bool_),
            times_served=np.zeros(count, dtype=np.int64),
        )

    def served(self, number: int, *, wait_s: float, cold: bool) -> None:
        """A request was given to a worker."""
        self.wait_s[number], self.cold[number] = wait_s, cold
        self.times_served[number] += 1

    def at_end(self, meter: Meter) -> None:
        """Nothing comes any more."""
        self.idle, self.starting, self.busy = meter.idle, meter.starting, meter.busy
        self.alive = meter.alive
        self.starts, self.retired = meter.starts, meter.retired

    @property
    def wasted(self) -> float:
        """Byte-seconds of memory that did no work."""
        return self.idle + self.starting

    @property
    def cold_rate(self) -> float:
        """Share of all requests that met a cold start."""
        return float(self.cold.mean()) if len(self.cold) else 0.0

    def cold_rates(self) -> Floats:
        """float64 (function,): the share of each function's requests that did; only of functions that had any."""
        count = len(self.trace.nbytes)
        came = np.bincount(self.trace.functions, minlength=count)
        cold = np.bincount(self.trace.functions, weights=self.cold, minlength=count)
        return cold[came > 0] / came[came > 0]

    def cold_rate_of(self, percentile: float) -> float:
        """The cold start rate that so many per cent of the functions do not exceed; 0 where nothing came."""
        rates = self.cold_rates()
        return float(np.percentile(rates, percentile)) if len(rates) else 0.0

    def wait_ms(self, percentile: float) -> float:
        """The wait that so many per cent of the requests that were served do not exceed, in milliseconds."""
        served = self.wait_s[~np.isnan(self.wait_s)]
        return 1e3 * float(np.percentile(served, percentile)) if len(served) else 0.0
