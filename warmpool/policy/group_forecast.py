"""The forecast of function groups: a worker of a group waits for each of its functions, in each lane."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from functools import reduce
from operator import add

from warmpool.policy.forecast import BRIDGE_S, ForecastKeepAlive
from warmpool.policy.hazard import NEVER, Hazard, Window, with_window
from warmpool.policy.keep_alive import Cost, Key
from warmpool.policy.price import Price

MOST_SOURCES = 64
"""Of a group: functions and lanes whose past is remembered; of more, those that came last."""


class GroupForecast(ForecastKeepAlive):
    """Keeps the first worker of a group for what each of its sources is expected to do, each by its own past.

    A source is what has arrivals of its own: a function in a lane. One that comes every ten minutes and one that comes
    by chance are told apart so, which they are not in the idle times of the group that they share. Keys are
    `(group, level)`: whatever is known of levels above the first is their own idle times.

    Args:
        price: Of memory; None: one of its own.
    """

    def __init__(self, price: Price | None = None) -> None:
        super().__init__(price)
        self._latest: dict[Key, OrderedDict[Key, float]] = defaultdict(OrderedDict)
        """By group, when each of its sources came last; the one that came last is last."""

        self._least_s: dict[Key, float] = {}

    def arrived(self, group: Key, source: Key, now_s: float) -> None:
        """A request came."""
        latest, name = self._latest[group], ("source", group, source)
        if source in latest:
            super().observe(name, now_s - latest[source])
        latest[source] = now_s
        latest.move_to_end(source)
        if len(latest) > MOST_SOURCES:
            longest_ago, _ = latest.popitem(last=False)
            self.forget(("source", group, longest_ago))

    def observe(self, key: Key, idle_s: float) -> None:
        """Learn from an idle time of a level; the first one's are those of its sources, where they are known."""
        group, level = _parts(key)
        if level or group not in self._latest:
            super().observe(key, idle_s)

    def keep_at_least(self, group: Key, seconds: float) -> None:
        """Workers of the group wait for so long, whatever is expected."""
        self._least_s[group] = seconds

    def rate(self, key: Key, idle_s: float, now_s: float) -> float:
        """Arrivals a second that the worker of a level would serve now."""
        return self._expected(key, idle_s, now_s).at(0.0)

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0, now_s: float = 0.0) -> tuple[Window, ...]:
        """When a level of a group is warm; at least for as long as was asked for."""
        group, level = _parts(key)
        if level or group not in self._latest:
            windows = super().windows(key, cost)
        else:
            least_rate = self.price.value * cost.nbytes / cost.weight
            ahead = self._expected(key, idle_s, now_s).windows(least_rate, lead_s=cost.start_s, bridge_s=BRIDGE_S)
            windows = tuple(Window(one.start_s + idle_s, one.end_s + idle_s) for one in ahead)
        least_s = self._least_s.get(group, 0.0)
        return with_window(windows, Window(0.0, least_s)) if least_s > 0 else windows

    def _expected(self, key: Key, idle_s: float, now_s: float) -> Hazard:
        """What comes from now on, by seconds from now: all sources of a group together."""
        group, level = _parts(key)
        if level or group not in self._latest:
            return self.hazard(key).after(idle_s)
        return reduce(add, self._of_sources(group, now_s), NEVER)

    def _of_sources(self, group: Key, now_s: float) -> Iterator[Hazard]:
        for source, latest_s in self._latest[group].items():
            yield self.hazard(("source", group, source)).after(now_s - latest_s)


def _parts(key: Key) -> tuple[Key, int]:
    assert isinstance(key, tuple)
    group, level = key
    return group, level
