"""How many workers a load needs so that nobody waits longer than is wanted."""

from __future__ import annotations

import math

from functions.staffing import for_backlog

__all__ = ["Rate", "for_backlog", "for_rate"]

_MOST = 1_000


def for_rate(rate_per_s: float, slots: int, service_s: float, target_wait_s: float) -> int:
    """Workers for requests that come at a steady rate: the fewest whose mean wait is what is wanted.

    Args:
        rate_per_s: Requests a second.
        slots: Requests that a worker runs at once.
        service_s: How long one runs, on average.
        target_wait_s: The mean wait that is wanted, more than 0.

    Source: the M/M/c queue (Erlang C) for c slots; its probability of waiting by the recursion of Erlang B. Halfin and
    Whitt, "Heavy-traffic limits for queues with many exponential servers", 1981, is the limit: load + beta × its root.
    """
    load = rate_per_s * service_s
    if load <= 0:
        return 0
    blocked = 1.0
    for servers in range(1, _MOST * slots):
        blocked = load * blocked / (servers + load * blocked)
        if servers > load:
            waiting = servers * blocked / (servers - load * (1.0 - blocked))
            if waiting * service_s / (servers - load) <= target_wait_s:
                return math.ceil(servers / slots)
    return _MOST


class Rate:
    """Arrivals a second, lately.

    Args:
        over_s: What is longer ago counts little.
    """

    def __init__(self, over_s: float = 60.0) -> None:
        self._over_s, self._value, self._now_s = over_s, 0.0, -math.inf

    def add(self, now_s: float, count: float = 1.0) -> None:
        """Some have arrived."""
        self._value = self.at(now_s) + count / self._over_s
        self._now_s = now_s

    def at(self, now_s: float) -> float:
        """The rate now: an exponentially weighted mean."""
        return 0.0 if not self._value else self._value * math.exp(-(now_s - self._now_s) / self._over_s)
