"""One host among the others: tells what it has, hears what they have, and takes its part of the work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

from bus.contracts import Capacity, GroupCapacity
from bus.contracts.codec import decode
from bus.errors import ContractError
from bus.ports import KeyValue, Subscription
from bus.subjects import LEASE_TTL_S
from warmpool.policy.view import GroupView
from warmpool.scaler.decision import Demand, assign
from warmpool.scaler.telling import CapacityTeller

log = logging.getLogger("omnibus.scaler")


class Part(NamedTuple):
    """What a host does of a group's work.

    Attributes:
        share: Workers that are its part of what all hosts together need.
        leads: Whether a single worker would be its part.
        least: Its part of those that are always there, on all hosts together.
        most: What the others leave of the most on all hosts together.
    """

    share: int
    leads: bool
    least: int
    most: int


class _Heard(NamedTuple):
    told: Capacity
    at_s: float


class Scaler:
    """A host's view of all hosts. Use as a context manager.

    Args:
        bucket: `pools`.
        host: Names this pool, and no other.
        room_nbytes: Memory that all of its workers may take together.
        views: This host's groups as it begins: others count on it as soon as they hear of it.
        on_change: Is called when another host has changed, come or gone.
        clock: This host's monotonic clock. When others were heard is told by it, so that no host's date matters.
    """

    def __init__(
        self,
        bucket: KeyValue,
        host: str,
        room_nbytes: int,
        views: Iterable[GroupView],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._host, self._room_nbytes = bucket, host, room_nbytes
        self._on_change, self._clock = on_change, clock
        self._others: dict[str, _Heard] = {}
        self._groups = {view.group: _capacity_of(view, 0) for view in views}
        self._told = self._groups
        self._teller = CapacityTeller(bucket, self._capacity)
        self._watch: Subscription

    async def __aenter__(self) -> Self:
        """Look who is there, tell them, and listen to them.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        # Known before anything is decided: else every host that comes would start the least for a moment.
        for host, data in (await self._bucket.entries()).items():
            self._on_entry(host, data)
        await self._teller.__aenter__()
        self._watch = await self._bucket.watch(self._on_entry)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Be no part of it any more."""
        await self._watch.close()
        await self._teller.__aexit__(kind, error, trace)

    @property
    def others(self) -> list[Capacity]:
        """The other hosts that are alive."""
        oldest_s = self._clock() - LEASE_TTL_S
        return [one.told for one in self._others.values() if one.at_s > oldest_s]

    @property
    def anybody_elsewhere(self) -> bool:
        """Whether another host has any worker at all."""
        return any(told.alive for one in self.others for told in one.groups.values())

    def served_elsewhere(self, group: str) -> bool:
        """Whether another host has workers for a group: it hears what is asked of it, and tells."""
        return any(one.groups[group].alive for one in self.others if group in one.groups)

    async def tell(self) -> None:
        """Tell the others what has changed, if that is of interest to them.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        if _differs(self._told, self._groups):
            told = self._groups
            await self._teller.tell()
            self._told = told

    def parts(self, views: Iterable[GroupView], requests: Mapping[str, int]) -> dict[str, Part]:
        """This host's part of each group; empty while there is no other host.

        Args:
            views: This host's groups.
            requests: That wait or run anywhere, by group, as far as this host knows.
        """
        views = list(views)
        self._groups = {view.group: _capacity_of(view, requests.get(view.group, 0)) for view in views}
        others = self.others
        if not others:
            return {}
        hosts = [*others, self._capacity()]
        demands = {view.group: _demand(view, hosts) for view in views}

        def mine(**changes: int) -> dict[str, int]:
            changed = {group: replace(demand, **changes) for group, demand in demands.items()}
            return assign(hosts, changed)[self._host]

        shares, firsts, idle = mine(least=0), mine(least=0, requests=1), mine(requests=0)
        return {
            view.group: Part(
                share=shares[view.group],
                leads=firsts[view.group] > 0,
                least=idle[view.group],
                most=max(shares[view.group], view.warm.max - _alive(view.group, others)),
            )
            for view in views
        }

    def _capacity(self) -> Capacity:
        return Capacity(host=self._host, room_nbytes=self._room_nbytes, groups=self._groups, renewed_s=time.time())

    def _on_entry(self, host: str, data: bytes | None) -> None:
        if host == self._host:
            return
        former = self._others.pop(host, None)
        if data is not None:
            try:
                told = decode(Capacity, data)
                # What is read again after a gap is no sign of life.
                again = former is not None and former.told.renewed_s == told.renewed_s
                self._others[host] = _Heard(told, former.at_s if former is not None and again else self._clock())
            except ContractError as error:  # of a newer build
                log.warning("the capacity of host %s is not understood: %s", host, error)
        now = self._others.get(host)
        if former is None or now is None or former.told.groups != now.told.groups:
            self._on_change()


def _capacity_of(view: GroupView, requests: int) -> GroupCapacity:
    return GroupCapacity(
        alive=view.alive,
        running=view.running or 0,
        requests=requests,
        slots=view.slots,
        most=view.warm.max,
        nbytes=int(view.cost.nbytes),
        start_s=view.cost.start_s,
        service_s=view.service_s,
    )


def _differs(told: Mapping[str, GroupCapacity], now: Mapping[str, GroupCapacity]) -> bool:
    """Whether others would decide otherwise: what is measured changes all the time, and a little of it is nothing."""
    first, second = (
        {name: (one.alive, -(-one.requests // one.slots)) for name, one in groups.items()} for groups in (told, now)
    )
    return first != second


def _demand(view: GroupView, hosts: Sequence[Capacity]) -> Demand:
    """What is asked for: the most that any host has seen, since not all look at the same time."""
    seen = [one.groups[view.group] for one in hosts if view.group in one.groups]
    requests = max(sum(one.running for one in seen), *(one.requests for one in seen))
    target_wait_s = view.warm.target_wait_ms / 1e3
    return Demand(requests=requests, target_wait_s=target_wait_s, least=view.warm.min, most=view.warm.max)


def _alive(group: str, hosts: Iterable[Capacity]) -> int:
    return sum(one.groups[group].alive for one in hosts if group in one.groups)
