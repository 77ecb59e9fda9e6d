"""The forecast of function groups: a worker of a group waits for each of its functions, in each lane."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from operator import add

from warmpool.policy.forecast import BRIDGE_S, ForecastKeepAlive
from warmpool.policy.hazard import Hazard, Window, with_window
from warmpool.policy.keep_alive import Cost, Key


class GroupForecast(ForecastKeepAlive):
    """Keeps the first worker of a group for what its functions and lanes are expected to do, each by its own past.

    Keys are `(group, level)`. Whatever else is known of levels above the first is their own idle times.

    Attributes:
        now_s: The time that it is asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._latest: dict[str, dict[Key, float]] = defaultdict(dict)
        self._least_s: dict[str, float] = {}

    def arrived(self, group: str, function: str, lane: str, now_s: float) -> None:
        """A request came for a function of the group."""
        source, latest = (group, function, lane), self._latest[group]
        if source in latest:
            super().observe(source, now_s - latest[source])
        latest[source] = now_s

    def keep_at_least(self, group: str, seconds: float) -> None:
        """Workers of the group wait for so long, whatever is expected."""
        self._least_s[group] = seconds

    def rate(self, group: str, level: int, idle_s: float) -> float:
        """Arrivals a second that a worker of the group would serve now."""
        return self._expected(group, level, idle_s).at(0.0)

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0) -> tuple[Window, ...]:
        """When a level of a group is warm; at least for as long as was asked for."""
        group, level = key if isinstance(key, tuple) else (key, 0)
        sources = self._latest.get(group)
        if level or not sources:
            windows = super().windows(key, cost)
        else:
            least_rate = self.price.value * cost.nbytes / cost.weight
            ahead = self._expected(group, 0, idle_s).windows(least_rate, lead_s=cost.start_s, bridge_s=BRIDGE_S)
            windows = tuple(Window(one.start_s + idle_s, one.end_s + idle_s) for one in ahead)
        least_s = self._least_s.get(group, 0.0)
        return with_window(windows, Window(0.0, least_s)) if least_s > 0 else windows

    def _expected(self, group: str, level: int, idle_s: float) -> Hazard:
        """What comes from now on, by seconds from now."""
        sources = self._latest.get(group)
        if level or not sources:
            return self.hazard((group, level)).after(idle_s)
        ages = ((source, self.now_s - latest_s) for source, latest_s in sources.items())
        return reduce(add, (self.hazard(source).after(age_s) for source, age_s in ages))
