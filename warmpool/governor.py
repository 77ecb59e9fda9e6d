"""How many workers of each group a host has: hears what is asked for, decides by the policy, and tells the pool."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from bus.contracts import Event, Tier
from bus.errors import OmnibusError
from bus.ports import Bus
from functions.flow.catalog import PlanCache
from functions.spec import FunctionSpec
from functions.warm import Tier as Warmth
from functions.warm import WarmSpec
from warmpool.demand import Demand
from warmpool.group import Group
from warmpool.member import Member
from warmpool.policy.forecast import ForecastKeepAlive
from warmpool.policy.keep_alive import KeepAlive
from warmpool.policy.levels import Levels
from warmpool.policy.look_ahead import LookAhead, by_group
from warmpool.policy.room import Claim, Why, admit
from warmpool.policy.shadow import Shadow
from warmpool.pool import Pool

log = logging.getLogger("omnibus.pool")

_SERVING = frozenset({Tier.LOADED, Tier.HOT})
_BUSY_TURN_S, _IDLE_TURN_S = 0.25, 1.0
_AHEAD_S = 30.0
"""How long a worker waits for a request that is on its way to it."""

_SHADOW_S = 600.0
"""No more memory over time is kept waiting than a fixed keep-alive of so many seconds would keep."""


class Governor:
    """Keeps a pool as its functions need it. Use as a context manager, inside the pool's.

    Args:
        pool: What is governed.
        bus: Where its functions are asked.
        functions: All that the pool may serve.
        settings: How warm each group is kept.
        policy: When workers wait; None: the forecast's.
        room_nbytes: The most memory of all workers.
        clock: Seconds on the host's monotonic clock.
    """

    def __init__(
        self,
        pool: Pool,
        bus: Bus,
        functions: Iterable[FunctionSpec],
        settings: Mapping[str, WarmSpec],
        *,
        policy: KeepAlive | None = None,
        room_nbytes: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._bus, self._room_nbytes, self._clock = pool, bus, room_nbytes, clock
        self._policy = policy or ForecastKeepAlive()
        self._shadow = Shadow(_SHADOW_S)
        specs = list(functions)
        self._groups = {
            name: Group(
                name=name,
                settings=warm,
                functions=[spec for spec in specs if spec.group == name],
                levels=Levels(name, self._policy, self._shadow),
            )
            for name, warm in settings.items()
        }
        self._group_of = {spec.name: spec.group for spec in specs if spec.group in self._groups}
        self._demand = Demand(bus, self._on_demand)
        self._look_ahead = LookAhead()
        self._heard = asyncio.Event()
        self._starts: list[Event] = []
        self._wanted: dict[str, dict[Tier, int]] = {}
        self._looked_s = clock()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Make every function's stream exist, so that nothing that is asked of a cold one is lost; begin."""
        await asyncio.gather(*(self._bus.ensure_function(function) for function in self._group_of))
        self._plans = PlanCache(await self._bus.bucket("plans"))
        await self._turn()
        self._running = asyncio.get_running_loop().create_task(self._run(), name="omnibus-governor")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the pool as it is."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        await self._demand.close()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._heard.wait()
            except TimeoutError:
                pass
            self._heard.clear()
            try:
                await self._turn()
            except OmnibusError as error:
                # What cannot be asked is not decided: the pool stays as it is.
                log.warning("the pool is not adjusted: %s", error)
                await asyncio.sleep(_IDLE_TURN_S)

    def _pause_s(self) -> float | None:
        """Until the next look at the workers; None: nothing changes before something is heard."""
        if any(group.levels.needed for group in self._groups.values()):
            return _BUSY_TURN_S
        if self._pool.members:
            return _IDLE_TURN_S
        edge_s = min((group.levels.edge_s for group in self._groups.values()), default=math.inf)
        return None if edge_s == math.inf else max(0.0, edge_s - self._clock())

    async def _turn(self) -> None:
        now_s = self._clock()
        await self._look_ahead_of_starts(now_s)
        for group in self._groups.values():
            await self._assess(group, now_s)
        self._account(now_s)
        self._adjust(now_s)
        await self._listen()

    async def _assess(self, group: Group, now_s: float) -> None:
        """What a group needs."""
        members = [member for member in self._members(group) if member.tier in _SERVING]
        served = group.look_at(members, now_s)
        busy = sum(member.vitals.busy for member in members)
        if group.asked or (busy and busy >= group.slots * len(members)):  # more may wait than its workers have
            group.asked, group.requests = False, await self._requests(group.functions)
        elif group.requests:
            group.requests = await self._requests([spec for spec in group.functions if spec.name in group.requests])
        needed = group.needed(busy)
        if served and not group.levels.needed and not needed:
            group.levels.need(1, group.cost, now_s)  # it came and went between two looks
        group.levels.need(needed, group.cost, now_s)
        group.levels.look(group.cost, now_s)

    async def _requests(self, functions: Iterable[FunctionSpec]) -> dict[str, int]:
        """Requests that run or wait, by function; none that has none."""
        found = {}
        for spec in functions:
            lanes = await self._bus.backlog(spec.name)
            if number := sum(pending + in_flight for pending, in_flight in lanes.values()):
                found[spec.name] = number
        return found

    def _members(self, group: Group) -> Iterator[Member]:
        return (member for member in self._pool.members if member.group == group.name and not member.leaving)

    def _adjust(self, now_s: float) -> None:
        admitted = admit(self._claims(now_s), self._room_nbytes)
        for group in self._groups.values():
            wanted = self._tiers(group, admitted)
            if wanted != self._wanted.get(group.name):
                told = ", ".join(f"{number} {tier.value}" for tier, number in wanted.items()) or "none"
                log.info("%s: %s", group.name, told)
                self._wanted[group.name] = wanted
                self._pool.want(group.name, wanted)

    def _claims(self, now_s: float) -> Iterator[Claim]:
        for group in self._groups.values():
            nbytes, least, needed = group.cost.nbytes, group.settings.min, group.levels.needed
            held = sum(self._wanted.get(group.name, {}).values())
            why = [Why.MINIMUM] * least + [Why.NEEDED] * (needed - least)
            if now_s < group.ahead_until_s and not why:
                why.append(Why.AHEAD)
            why += [Why.KEPT] * (needed + group.kept(now_s) - len(why))
            for number, reason in enumerate(why[: group.settings.max]):
                yield Claim(
                    group=group.name, nbytes=nbytes, why=reason, value=self._value(group, now_s), held=number < held
                )

    def _value(self, group: Group, now_s: float) -> float:
        """Cold starts a second that one more waiting worker saves."""
        idle_s = group.levels.idle_s(now_s)
        if idle_s is None or not isinstance(self._policy, ForecastKeepAlive):
            return 0.0
        return self._policy.hazard((group.name, 0)).at(idle_s)

    def _tiers(self, group: Group, admitted: Counter[str]) -> dict[Tier, int]:
        """Those that work, or will at once, serve; those that wait are as warm as is wished."""
        number, tier = admitted[group.name], group.settings.tier
        working = min(number, max(group.levels.needed, int(self._clock() < group.ahead_until_s)))
        waiting = number - working
        if tier in (Warmth.LOADED, Warmth.HOT):
            tiers = {Tier(tier.value): number}
        elif tier is Warmth.PRIMED:
            tiers = {Tier.LOADED: working, Tier.PRIMED: waiting}
        else:
            tiers = {Tier.LOADED: working}
        return {one: count for one, count in tiers.items() if count}

    async def _listen(self) -> None:
        """Listen to what nobody takes messages for."""
        served = {name for name, tiers in self._wanted.items() if not tiers.keys().isdisjoint(_SERVING)}
        functions = {function for function, group in self._group_of.items() if group not in served}
        for function in await self._demand.listen_to(functions):
            # What was published before somebody listened is seen by asking once.
            self._groups[self._group_of[function]].asked = True
            self._heard.set()

    def _on_demand(self, function: str, event: Event | None) -> None:
        self._groups[self._group_of[function]].asked = True
        if event is not None and event.plan:
            self._starts.append(event)
        self._heard.set()

    async def _look_ahead_of_starts(self, now_s: float) -> None:
        """Have workers ready for the later stages of requests that were just heard of."""
        starts, self._starts = self._starts, []
        for digest in {event.plan for event in starts}:
            due = by_group(self._look_ahead.expect(await self._plans.get(digest)), self._group_of)
            for name, one in due.items():
                group = self._groups[name]
                if group.settings.look_ahead and one.after_s <= group.cost.start_s:
                    group.ahead_until_s = now_s + one.after_s + _AHEAD_S

    def _account(self, now_s: float) -> None:
        seconds, self._looked_s = now_s - self._looked_s, now_s
        kept = sum(group.kept(now_s) * group.cost.nbytes for group in self._groups.values())
        allowed = self._shadow.pass_to(now_s) / seconds if seconds > 0 else 0.0
        self._policy.account(seconds, kept, allowed)
