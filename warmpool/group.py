"""One group of functions as the governor of its host sees it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from functions.spec import FunctionSpec
from functions.warm import WarmSpec
from warmpool.member import Member
from warmpool.policy.keep_alive import Cost
from warmpool.policy.view import GroupView

_FIRST_NBYTES, _FIRST_START_S, _FIRST_SERVICE_S = 200e6, 1.0, 0.5
"""Until they are measured."""

_NEWEST, _MEASURED = 0.2, 8
_TRUSTED_S = 0.25
"""So long what is heard is added up, and the bus is not asked how much of it is done already."""

_MOST_HEARD = 4096
"""Messages that were heard, and whose tenants are remembered."""


class Look(NamedTuple):
    """What has become of a group's workers since the last look.

    Attributes:
        served: Messages that they have settled.
        came: Messages that have come to them, by the subject that they were published on; redeliveries are none.
    """

    served: int
    came: Mapping[str, int]


@dataclass(kw_only=True)
class Group:
    """What is known of a group.

    Whose its requests are is known of those that its workers have, and of those that were published while it had none.
    What is published to a group with workers and waits behind what they have is taken to be of the same tenants: a
    worker takes messages in the order they came, so a flood of one tenant is seen as soon as it gets to the slots.

    Attributes:
        name: Its name.
        settings: What its deployer wants.
        functions: Its functions.
        asked: Whether there may be requests that were not heard of.
        requests: By function, what ran or waited when it was last asked for, and what was heard since.
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
    _served: dict[Member, int] = field(default_factory=dict)
    _came: dict[Member, dict[str, int]] = field(default_factory=dict)
    _running: Counter[str] = field(default_factory=Counter)
    _trusted_s: float | None = None
    _fresh: Counter[str] = field(default_factory=Counter)
    _heard: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_HEARD))
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
    def served(self) -> bool:
        """Whether there is a worker that takes its messages."""
        return self._serving > 0

    @property
    def full(self) -> bool:
        """Whether its workers have so much that more may wait."""
        return 0 < self._serving * self.slots <= self.busy

    def hear(self, function: str, tenant: str) -> None:
        """Something was published for it while it had no worker: it waits, whatever the bus would say by now.

        Args:
            function: Which it is for.
            tenant: The label of whose it is.
        """
        self.requests[function] = self.requests.get(function, 0) + 1
        self._heard.append(tenant)
        self._fresh[function] += 1

    def to_ask(self, functions: Sequence[str], now_s: float) -> Sequence[str]:
        """Functions whose requests the bus is to be asked for now; what was just heard was counted.

        Args:
            functions: All that its workers serve.
            now_s: On the host's monotonic clock.
        """
        if self.asked or self.full:
            self.asked, self._trusted_s = False, None
            return functions
        since_s = now_s if self._trusted_s is None else self._trusted_s
        if self._fresh and now_s - since_s < _TRUSTED_S:
            self._trusted_s = since_s
            self._fresh.clear()
            return ()
        self._trusted_s = None
        return list(self.requests)

    def tell(self, requests: Mapping[str, int]) -> None:
        """What the bus has said of the functions that it was asked for.

        Args:
            requests: That run or wait, by function.
        """
        # Who listens may hear a message before the stream has it, and hears others while the bus answers.
        fresh, self._fresh = self._fresh, Counter()
        self.requests = {name: max(requests.get(name, 0), fresh[name]) for name in requests.keys() | fresh.keys()}

    def look_at(self, members: Sequence[Member], now_s: float) -> Look:
        """Take notice of how its workers are.

        Args:
            members: Those that are not leaving.
            now_s: On the host's monotonic clock.
        """
        seconds = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        # A record that is closed is of a worker that has just ended.
        serving = [member for member in members if member.tier and member.tier.serves and not member.record.closed]
        self._alive, self._serving = len(members), len(serving)
        self.busy = sum(member.vitals.busy for member in serving)
        self._busy_s += self.busy * seconds
        for member in serving:
            self._learn(member)
        look = self._since(serving)
        self._done += look.served
        if self._done >= _MEASURED:
            self._service_s += _NEWEST * (self._busy_s / self._done - self._service_s)
            self._busy_s, self._done = 0.0, 0
        return look

    def _since(self, serving: Iterable[Member]) -> Look:
        served, came, running, fresh = (
            dict[Member, int](),
            dict[Member, dict[str, int]](),
            Counter[str](),
            Counter[str](),
        )
        for member in serving:
            served[member], came[member] = member.vitals.served, member.record.arrivals()
            running.update(member.record.tenants())
            before = self._came.get(member, {})
            fresh.update({subject: count - before.get(subject, 0) for subject, count in came[member].items()})
        settled = sum(number - self._served.get(member, 0) for member, number in served.items())
        self._served, self._came, self._running = served, came, running
        return Look(settled, +fresh)

    def view(self) -> GroupView:
        """What the policy sees of it."""
        waiting = max(0, sum(self.requests.values()) - self.busy)
        while len(self._heard) > waiting:
            self._heard.popleft()  # workers take the oldest first
        return GroupView(
            group=self.name,
            warm=self.settings,
            cost=Cost(nbytes=self._nbytes, start_s=self._start_s),
            slots=self.slots,
            service_s=self.service_s,
            alive=self._alive,
            running=self.busy,
            waiting=max(0, max(self.requests.values(), default=0) - self.busy),
            tenants=self._running + Counter(self._heard),
        )

    def _learn(self, member: Member) -> None:
        if member.vitals.unique_nbytes:
            self._nbytes += _NEWEST * (member.vitals.unique_nbytes - self._nbytes)
        if member.timings_s and member not in self._served:
            self._start_s += _NEWEST * (sum(member.timings_s.values()) - self._start_s)
