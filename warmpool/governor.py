"""How many workers of each group a host has: hears what is asked for, has the policy decide, and tells the pool."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from bus import subjects
from bus.contracts import Tier
from bus.errors import OmnibusError, UnknownPipelineError
from bus.ports import Bus
from bus.subjects import START_FUNCTION
from functions.deployment import starting_group
from functions.flow.catalog import PlanCache
from functions.spec import FunctionSpec
from functions.warm import WarmSpec
from warmpool.ahead import Ahead
from warmpool.demand import Demand, Heard
from warmpool.group import Group
from warmpool.policy.pool_policy import PoolPolicy
from warmpool.policy.view import GroupView
from warmpool.pool import Pool
from warmpool.scaler.scaler import Scaler

log = logging.getLogger("omnibus.pool")

_BUSY_TURN_S, _IDLE_TURN_S = 0.25, 1.0
_CALM_S = 0.01
"""What is heard within so long after a turn is dealt with in one: a flood is heard message by message."""
_MOST_NBYTES = 1 << 62
_MOST_PLANS = 32
"""Kinds of requests that are looked at in a turn for what is ahead of them: anybody can name plans that are none, and
each is asked for."""


class Governor:
    """Keeps a pool as its functions need it. Use as a context manager, inside the pool's.

    Args:
        pool: What is governed.
        bus: Where its functions are asked.
        functions: All that the pool may serve.
        settings: How warm each group is kept.
        policy: Decides; None: with its defaults.
        room_nbytes: The most memory of all workers.
        host: Names this pool among those on the bus, so that they share the work; None: it is the only one.
        clock: The policy's seconds, from anywhere.
    """

    def __init__(
        self,
        pool: Pool,
        bus: Bus,
        functions: Iterable[FunctionSpec],
        settings: Mapping[str, WarmSpec],
        *,
        policy: PoolPolicy | None = None,
        room_nbytes: float = math.inf,
        host: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool, self._bus, self._room_nbytes, self._clock = pool, bus, room_nbytes, clock
        self._policy = policy or PoolPolicy()
        specs = [spec for spec in functions if spec.group in settings]
        self._groups = {
            name: Group(name=name, settings=warm, functions=[spec for spec in specs if spec.group == name])
            for name, warm in settings.items()
        }
        self._group_of = {spec.name: spec.group for spec in specs}
        if (starting := starting_group(specs, settings)) is not None:
            self._group_of[START_FUNCTION] = starting
        self._demand = Demand(bus, self._on_demand, self._on_gap)
        self._plans: PlanCache
        self._heard = asyncio.Event()
        self._in_company = False
        self._ahead = Ahead(self._policy, self._group_of)
        self._plans_heard: set[tuple[str, frozenset[str]]] = set()
        self._wanted: dict[str, dict[Tier, int]] = {}
        self._look_again_s = math.inf
        self._running: asyncio.Task[None] | None = None
        self._host = host
        self._scaler: Scaler | None = None

    async def __aenter__(self) -> Self:
        """Make every function's stream exist, so that nothing that is asked of a cold one is lost; begin."""
        await asyncio.gather(*(self._bus.ensure_function(function) for function in self._group_of))
        self._plans = PlanCache(await self._bus.bucket("plans"))
        if self._host is not None:
            room_nbytes = int(min(self._room_nbytes, _MOST_NBYTES))
            views = [group.view() for group in self._groups.values()]
            scaler = Scaler(await self._bus.bucket("pools"), self._host, room_nbytes, views, self._heard.set)
            self._scaler = await scaler.__aenter__()
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
        if self._scaler is not None:
            await self._scaler.__aexit__(kind, error, trace)
        await self._demand.close()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):  # nothing was heard: it is time to look
                async with asyncio.timeout(self._pause_s()):
                    await self._heard.wait()
            self._heard.clear()
            try:
                await self._turn()
                await asyncio.sleep(_CALM_S)
            except Exception as error:
                # What cannot be asked is not decided: the pool stays as it is. Whatever it is, who asks next is heard.
                told = None if isinstance(error, OmnibusError) else error
                log.warning("the pool is not adjusted: %s", error, exc_info=told)
                await asyncio.sleep(_IDLE_TURN_S)

    def _pause_s(self) -> float | None:
        """Until the next look; None: nothing changes before something is heard."""
        if any(group.busy or group.requests for group in self._groups.values()):
            return _BUSY_TURN_S
        if self._pool.members or self._in_company:
            return _IDLE_TURN_S  # a host that is gone says nothing
        return None if self._look_again_s == math.inf else max(0.0, self._look_again_s - self._clock())

    async def _turn(self) -> None:
        """Look, decide, and tell the pool; what can wait for the bus comes after what somebody waits for."""
        await asyncio.gather(*(self._look(group) for group in self._groups.values()))
        views = self._shared([group.view() for group in self._groups.values()])
        decision = self._policy.decide(views, self._room_nbytes, self._clock())
        self._look_again_s = decision.look_again_s
        for name, target in decision.targets.items():
            wanted = target.tiers
            if wanted != self._wanted.get(name):
                told = ", ".join(f"{number} {tier.value}" for tier, number in wanted.items()) or "none"
                log.info("%s: %s (%s)", name, told, target.why)
                self._wanted[name] = wanted
                self._pool.want(name, wanted)
        await self._listen()
        if self._scaler is not None:
            await self._scaler.tell()
        await self._note_what_is_ahead()

    def _shared(self, views: list[GroupView]) -> list[GroupView]:
        """What is this host's part of it, where there are others."""
        if self._scaler is None:
            return views
        # As it was in this turn: who is found to be gone after it is what the next one is for.
        self._in_company = bool(self._scaler.others)
        requests = {name: max(group.requests.values(), default=0) for name, group in self._groups.items()}
        parts = self._scaler.parts(views, requests)
        return [replace(view, **parts[view.group]._asdict()) if view.group in parts else view for view in views]

    async def _look(self, group: Group) -> None:
        """How a group's workers are, and where it cannot be told from them, what waits for them."""
        now_s = self._clock()
        members = [member for member in self._pool.members if member.group == group.name and not member.leaving]
        look = group.look_at(members, now_s)
        for subject, count in look.came.items():
            function, lane = subjects.function_of(subject), subjects.lane_of(subject)
            self._policy.arrived(group.name, function, lane, now_s, count)
        if names := group.to_ask(self._served_by(group), now_s):
            try:
                group.tell(await self._requests(names))
            except OmnibusError:
                group.asked = True
                raise
        self._ahead.look(group.name, now_s, works=bool(look.served or group.busy or group.requests))

    def _served_by(self, group: Group) -> list[str]:
        names = [spec.name for spec in group.functions]
        return [*names, START_FUNCTION] if group.name == self._group_of[START_FUNCTION] else names

    async def _requests(self, names: Sequence[str]) -> dict[str, int]:
        """Requests that run or wait, by function; none that has none."""
        backlogs = await asyncio.gather(*(self._bus.backlog(name) for name in names))
        counts = (sum(pending + in_flight for pending, in_flight in lanes.values()) for lanes in backlogs)
        return {name: count for name, count in zip(names, counts, strict=True) if count}

    async def _listen(self) -> None:
        """Listen to what nobody takes messages for: also while a worker starts, which may not be enough."""
        wanted = {name for name, tiers in self._wanted.items() if any(tier.serves for tier in tiers)}
        served = {name for name in wanted if self._groups[name].served}
        if self._scaler is not None:  # who has workers hears what is asked of them, and tells
            served |= {name for name in self._groups if self._scaler.served_elsewhere(name)}
        cold = {function for function, group in self._group_of.items() if group not in served}
        if served or wanted or (self._scaler is not None and self._scaler.anybody_elsewhere):
            cold.discard(START_FUNCTION)  # any worker starts pipelines
        await self._demand.listen_to(cold)

    def _on_gap(self, function: str) -> None:
        """Something may have been published that was not heard: it is seen by asking once."""
        self._groups[self._group_of[function]].asked = True
        self._heard.set()

    def _on_demand(self, heard: Heard) -> None:
        self._groups[self._group_of[heard.function]].hear(heard.function, heard.tenant)
        if heard.plan and len(self._plans_heard) < _MOST_PLANS:
            self._plans_heard.add((heard.plan, heard.stages))
        self._heard.set()

    async def _note_what_is_ahead(self) -> None:
        """Have workers ready for the later stages of requests that were just heard of."""
        heard, self._plans_heard = self._plans_heard, set()
        service_s = {function: self._groups[group].service_s for function, group in self._group_of.items()}
        for digest, stages in heard:
            try:
                plan = await self._plans.get(digest)
            except UnknownPipelineError as error:  # whoever publishes can claim anything
                log.info("nothing is made ready for a request that was heard: %s", error)
                continue
            self._ahead.start(plan, service_s, self._clock(), stages or None)
            self._heard.set()
