"""Our keep-alive policy: a worker waits while its function's next arrival is likely enough for the memory it holds."""

from __future__ import annotations

from collections import defaultdict

from warmpool.policy.hazard import Hazard, Window
from warmpool.policy.idle_times import IdleTimes, Population, hazard_of
from warmpool.policy.keep_alive import Cost, Key
from warmpool.policy.price import Price

FIRST_PRICE = 1.0 / (1200.0 * 256e6)
"""A worker of 256 MB waits while it is needed more often than every twenty minutes."""

_STALE = 0.1
BRIDGE_S = 60.0
"""Nothing ends in order to start again within so many seconds: starts take cores from those that work."""


class ForecastKeepAlive:
    """Learns idle times by key and keeps what is worth the price of memory.

    Args:
        price: Of memory; None: one of its own.

    Attributes:
        price: Of memory.
    """

    def __init__(self, price: Price | None = None) -> None:
        self.price = price or Price(FIRST_PRICE)
        self._known: dict[Key, IdleTimes] = defaultdict(IdleTimes)
        self._population = Population()
        self._hazards: dict[Key, tuple[int, Hazard]] = {}

    def observe(self, key: Key, idle_s: float) -> None:
        """Learn from an idle time."""
        self._population.add(self._known[key], idle_s)
        self._known[key].add(idle_s)

    def hazard(self, key: Key) -> Hazard:
        """Of the function's next arrival, by how long it has been idle."""
        times = self._known[key]
        fresh, hazard = self._hazards.get(key, (-1, None))
        # What a tenth more of history would change is not worth the arithmetic on a busy function.
        if hazard is None or times.seen > fresh * (1 + _STALE) or times.seen < 16:
            hazard = hazard_of(times, self._population)
            self._hazards[key] = (times.seen, hazard)
        return hazard

    def arrived(self, group: Key, source: Key, now_s: float) -> None:
        """Idle times are what is learnt from."""

    def forget(self, key: Key) -> None:
        """Remember nothing of its own; what it had in common with others stays."""
        self._known.pop(key, None)
        self._hazards.pop(key, None)

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0, now_s: float = 0.0) -> tuple[Window, ...]:
        """Where the hazard × weight ÷ bytes is at least the price."""
        least_rate = self.price.value * cost.nbytes / cost.weight
        return self.hazard(key).windows(least_rate, lead_s=cost.start_s, bridge_s=BRIDGE_S)

    def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
        """The price follows what is spent."""
        self.price.account(seconds, kept_nbytes, allowed_nbytes)
