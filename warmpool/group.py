"""One group of functions as the governor of its host sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from functions.spec import FunctionSpec
from functions.warm import WarmSpec
from warmpool.member import Member
from warmpool.policy.keep_alive import Cost
from warmpool.policy.levels import Levels
from warmpool.policy.staffing import for_backlog

_FIRST_NBYTES, _FIRST_START_S, _FIRST_SERVICE_S = 200e6, 1.0, 0.5
"""Until they are measured."""

_NEWEST = 0.2


@dataclass(kw_only=True)
class Group:
    """What is known of a group.

    Attributes:
        name: Its name.
        settings: What its deployer wants.
        functions: Its functions.
        levels: Its need of workers, and for how long they are kept.
        asked: Whether something was heard that has not been looked into yet.
        requests: That ran or waited when it was last asked for.
        ahead_until_s: Until when a request is on its way that it will be needed for.
    """

    name: str
    settings: WarmSpec
    functions: Sequence[FunctionSpec]
    levels: Levels
    asked: bool = False
    requests: dict[str, int] = field(default_factory=dict)
    ahead_until_s: float = 0.0
    _nbytes: float = _FIRST_NBYTES
    _start_s: float = _FIRST_START_S
    _service_s: float = _FIRST_SERVICE_S
    _served: dict[str, int] = field(default_factory=dict)
    _busy_s: float = 0.0
    _done: int = 0
    _looked_s: float | None = None

    @property
    def slots(self) -> int:
        """Requests of one function that a worker runs at once, of the function that has the fewest."""
        return min(spec.slots for spec in self.functions)

    @property
    def cost(self) -> Cost:
        """What a worker costs, as far as it was measured."""
        return Cost(nbytes=self._nbytes, start_s=self._start_s)

    def look_at(self, members: Iterable[Member], now_s: float) -> bool:
        """Take notice of how its workers are; whether they have served anything since the last time."""
        seconds = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s, served = now_s, dict[str, int]()
        for member in members:
            vitals = member.vitals
            served[member.slot] = vitals.served
            self._busy_s += vitals.busy * seconds
            if vitals.unique_nbytes:
                self._nbytes += _NEWEST * (vitals.unique_nbytes - self._nbytes)
            if member.tier is member.goal and member.timings_s:
                self._start_s += _NEWEST * (sum(member.timings_s.values()) - self._start_s)
        fresh = sum(max(0, number - self._served.get(slot, 0)) for slot, number in served.items())
        self._served, self._done = served, self._done + fresh
        if self._done >= 8:
            self._service_s += _NEWEST * (self._busy_s / self._done - self._service_s)
            self._busy_s, self._done = 0.0, 0
        return fresh > 0

    def needed(self, busy: int) -> int:
        """Workers for what runs and what waits.

        Args:
            busy: Requests that its workers have.
        """
        target_s = self.settings.target_wait_ms / 1000
        backlogs = [
            for_backlog(number, spec.slots, max(self._service_s, 0.001), target_s)
            for spec in self.functions
            if (number := self.requests.get(spec.name, 0))
        ]
        return min(self.settings.max, max([for_backlog(busy, self.slots, self._service_s, target_s), *backlogs]))

    def kept(self, now_s: float) -> int:
        """Workers that wait, beyond those that are needed."""
        keep_alive_s, idle_s = self.settings.keep_alive_s, self.levels.idle_s(now_s)
        asked_for = int(keep_alive_s is not None and idle_s is not None and idle_s < keep_alive_s)
        return min(self.settings.max - self.levels.needed, max(self.levels.kept, asked_for))
