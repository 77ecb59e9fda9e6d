"""One group of functions as the governor of its host sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bus.contracts import Tier
from functions.spec import FunctionSpec
from functions.warm import Tier as Warmth
from functions.warm import WarmSpec
from warmpool.member import Member
from warmpool.policy.keep_alive import Cost
from warmpool.policy.staffing import for_backlog
from warmpool.policy.view import GroupView, Target

SERVING = frozenset({Tier.LOADED, Tier.HOT})
"""Tiers in which messages are taken."""

_FIRST_NBYTES, _FIRST_START_S, _FIRST_SERVICE_S = 200e6, 1.0, 0.5
"""Until they are measured."""

_NEWEST, _MEASURED = 0.2, 8


@dataclass(kw_only=True)
class Group:
    """What is known of a group.

    Attributes:
        name: Its name.
        settings: What its deployer wants.
        functions: Its functions.
        asked: Whether something was heard that has not been looked into yet.
        requests: By function, what ran or waited when it was last asked for.
        busy: Requests that its workers had when they were last looked at.
    """

    name: str
    settings: WarmSpec
    functions: Sequence[FunctionSpec]
    asked: bool = False
    requests: dict[str, int] = field(default_factory=dict)
    busy: int = 0
    _alive: int = 0
    _serving: int = 0
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
    def service_s(self) -> float:
        """How long a request runs, lately and on average."""
        return max(self._service_s, 1e-3)

    @property
    def full(self) -> bool:
        """Whether its workers have so much that more may wait."""
        return 0 < self._serving * self.slots <= self.busy

    def look_at(self, members: Sequence[Member], now_s: float) -> int:
        """Take notice of how its workers are; how many messages they have settled since the last time.

        Args:
            members: Those that are not leaving.
            now_s: On the host's monotonic clock.
        """
        seconds = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s, served = now_s, dict[str, int]()
        serving = [member for member in members if member.tier in SERVING]
        self._alive, self._serving = len(members), len(serving)
        self.busy = sum(member.vitals.busy for member in serving)
        self._busy_s += self.busy * seconds
        for member in serving:
            served[member.slot] = member.vitals.served
            self._learn(member)
        fresh = sum(max(0, number - self._served.get(slot, 0)) for slot, number in served.items())
        self._served, self._done = served, self._done + fresh
        if self._done >= _MEASURED:
            self._service_s += _NEWEST * (self._busy_s / self._done - self._service_s)
            self._busy_s, self._done = 0.0, 0
        return fresh

    def view(self) -> GroupView:
        """What the policy sees of it."""
        return GroupView(
            group=self.name,
            warm=self.settings,
            cost=Cost(nbytes=self._nbytes, start_s=self._start_s),
            slots=self.slots,
            service_s=self.service_s,
            alive=self._alive,
            running=self.busy,
            waiting=max(0, max(self.requests.values(), default=0) - self.busy),
        )

    def tiers(self, target: Target) -> dict[Tier, int]:
        """Workers by tier: those that work, or will at once, serve; those that wait are as ready as is wished."""
        requests = max([self.busy, *self.requests.values()])
        target_s = self.settings.target_wait_ms / 1e3
        working = min(target.workers, for_backlog(requests, self.slots, self.service_s, target_s))
        if target.tier.serves:
            tiers = {Tier(target.tier.value): target.workers}
        elif target.tier is Warmth.PRIMED:
            tiers = {Tier.LOADED: working, Tier.PRIMED: target.workers - working}
        else:
            tiers = {Tier.LOADED: working}
        return {tier: number for tier, number in tiers.items() if number}

    def _learn(self, member: Member) -> None:
        if member.vitals.unique_nbytes:
            self._nbytes += _NEWEST * (member.vitals.unique_nbytes - self._nbytes)
        if member.timings_s and member.slot not in self._served:
            self._start_s += _NEWEST * (sum(member.timings_s.values()) - self._start_s)
