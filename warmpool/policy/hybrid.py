"""The hybrid histogram policy of "Serverless in the Wild", to compare with.

Source: Shahrad et al., "Serverless in the Wild: Characterizing and Optimizing the Serverless Workload at a Large Cloud
Provider", USENIX ATC 2020, section 4.2 and its evaluation's settings: bins of a minute, a range of four hours, the 5th
and the 99th percentile of the idle times with 10 % off and on as the pre-warming and keep-alive windows, a histogram
that is used when the coefficient of variation of its bin counts is at least 2, and a forecast with a margin of 15 %
where most idle times are beyond its range. The forecast there is an ARIMA model fitted for each such application (less
than 1 % of invocations); here it is that model's simplest member, the mean of the latest idle times.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from warmpool.policy.hazard import Window
from warmpool.policy.keep_alive import Cost, Key

_BIN_S = 60.0
_HEAD, _TAIL = 0.05, 0.99
_MARGIN, _FORECAST_MARGIN = 0.10, 0.15
_REPRESENTATIVE_CV = 2.0
_OUT_OF_BOUNDS = 0.5
_LEAST = 2
_RECENT = 8


class _Histogram:
    def __init__(self, bins: int) -> None:
        self.counts = np.zeros(bins)
        self.beyond = 0
        self.recent: deque[float] = deque(maxlen=_RECENT)

    @property
    def total(self) -> float:
        return float(self.counts.sum()) + self.beyond

    def add(self, idle_s: float) -> None:
        index = int(idle_s / _BIN_S)
        if index < len(self.counts):
            self.counts[index] += 1
        else:
            self.beyond += 1
        self.recent.append(idle_s)

    def percentile(self, share: float) -> int:
        """The bin in which the cumulated count reaches a share of all within the range."""
        cumulated = np.cumsum(self.counts)
        return int(np.searchsorted(cumulated, share * cumulated[-1]))


class HistogramKeepAlive:
    """Pre-warming and keep-alive windows from percentiles of each function's idle times.

    Args:
        range_s: The histogram's range, and how long a worker waits where it says nothing.
    """

    def __init__(self, range_s: float = 4 * 3600.0) -> None:
        self._range_s = range_s
        self._known: dict[Key, _Histogram] = defaultdict(lambda: _Histogram(math.ceil(range_s / _BIN_S)))

    def observe(self, key: Key, idle_s: float) -> None:
        """Count an idle time."""
        self._known[key].add(idle_s)

    def arrived(self, group: Key, source: Key, now_s: float) -> None:
        """Only idle times are counted."""

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0, now_s: float = 0.0) -> tuple[Window, ...]:
        """One window; for the whole range from the start where the histogram is not representative."""
        known = self._known[key]
        if known.total >= _LEAST and known.beyond > _OUT_OF_BOUNDS * known.total:
            mean_s = sum(known.recent) / len(known.recent)
            return (Window((1 - _FORECAST_MARGIN) * mean_s, (1 + _FORECAST_MARGIN) * mean_s),)
        if known.total - known.beyond < _LEAST or _variation(known.counts) < _REPRESENTATIVE_CV:
            return (Window(0.0, self._range_s),)
        # Head and tail are rounded to the edges of their bins, down and up; then the margins.
        start_s = (1 - _MARGIN) * known.percentile(_HEAD) * _BIN_S
        end_s = (1 + _MARGIN) * (known.percentile(_TAIL) + 1) * _BIN_S
        return (Window(max(0.0, start_s - cost.start_s) if start_s else 0.0, end_s),)

    def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
        """Nothing is limited."""


def _variation(counts: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    mean = counts.mean()
    return float(counts.std() / mean) if mean else 0.0
