"""The pool of a host: as many workers of each group as are wanted, each as warm as is wanted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Self

from bus.contracts import Tier
from bus.errors import WorkerStartError
from warmpool.member import Member
from warmpool.slot import Slot, SlotConfig
from warmpool.starter import Starter
from warmpool.upkeep import Upkeep

log = logging.getLogger("omnibus.pool")

_LOOK_EVERY_S = 1.0


class Pool:
    """Starts workers, has them become warmer, replaces those that die, retires those that are not wanted.

    Use as a context manager: at the end every worker finishes what it has and is gone.

    Args:
        starter: Brings workers to life; opened by its owner.
        config: How each of them is kept.
        upkeep: Which workers are to be killed or replaced.
        clock: Seconds on the host's monotonic clock.

    Attributes:
        starter: Brings workers to life.
    """

    def __init__(
        self,
        starter: Starter,
        config: SlotConfig,
        upkeep: Upkeep | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.starter, self._config, self._clock = starter, config, clock
        self._upkeep = upkeep or Upkeep()
        self._wanted: dict[str, list[Tier]] = {}
        self._slots: dict[str, Slot] = {}
        self._proven: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._failure: asyncio.Future[None]
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin; nothing is wanted yet."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        self._looking = loop.create_task(self._look(), name="omnibus-upkeep")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every worker, all at the same time."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await asyncio.gather(*(slot.close() for slot in list(self._slots.values())))
        self._failure.cancel()

    @property
    def members(self) -> tuple[Member, ...]:
        """Every worker that is alive or being started, by slot."""
        return tuple(slot.member for _, slot in sorted(self._slots.items()))

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by slot, such as `media-0`, of those that are alive."""
        return {
            member.slot: member.process.pid
            for member in self.members
            if member.process is not None and member.process.returncode is None
        }

    def want(self, group: str, tiers: Mapping[Tier, int]) -> None:
        """How many workers of a group there are to be, by how warm they are to be; takes effect from now on.

        Workers that are there become warmer where that is enough. Those that are not wanted any more, the coldest and
        longest idle first, finish what they have and end.

        Args:
            group: Which functions they serve.
            tiers: Workers by tier; none at all: the group is scaled to zero.
        """
        wanted = [tier for tier, number in tiers.items() for _ in range(number)]
        self._wanted[group] = sorted(wanted, key=lambda tier: -tier.rank)
        self._adjust(group)

    async def reach(self, group: str) -> tuple[Member, ...]:
        """Wait until a group is as wanted; returns its workers.

        Raises:
            OmnibusError: What one of them failed with, for good.
        """
        while True:
            slots = [slot for slot in self._of(group) if slot.replaces is None]
            if len(slots) == len(self._wanted.get(group, [])) and all(slot.warm for slot in slots):
                return tuple(slot.member for slot in slots)
            if self._failure.done():
                self._failure.result()
            changed = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    async def failed(self) -> None:
        """Return never; raise when a worker cannot be kept alive.

        Raises:
            WorkerStartError: It failed again and again; names its log file.
        """
        await asyncio.shield(self._failure)

    def replace(self, slot_name: str, why: str) -> None:
        """Put a fresh worker in a worker's place: that one finishes what it has when the new one is as warm.

        Args:
            slot_name: Such as `media-0`.
            why: For the log.
        """
        slot = self._slots.get(slot_name)
        if slot is None or not slot.wanted or any(other.replaces is slot for other in self._slots.values()):
            return
        log.info("%s is replaced: %s", slot_name, why)
        fresh = self._add(slot.group, slot.tier)
        fresh.replaces = slot
        if slot.replaces is not None:  # it has not taken its place yet, and need not any more
            fresh.replaces, slot.replaces = slot.replaces, None
            slot.leave()

    async def renew(self, why: str) -> None:
        """Put a fresh worker in the place of each, such as after the code or a setting has changed.

        Args:
            why: For the log.
        """
        await self.starter.renew()
        for name in list(self._slots):
            self.replace(name, why)

    def _of(self, group: str) -> list[Slot]:
        """The slots of a group that are wanted, the warmest and busiest first."""

        def warmth(slot: Slot) -> tuple[int, int, float]:
            tier = slot.member.tier
            return -slot.tier.rank, -(-1 if tier is None else tier.rank), -slot.member.vitals.active_s

        return sorted((slot for slot in self._slots.values() if slot.group == group and slot.wanted), key=warmth)

    def _adjust(self, group: str) -> None:
        wanted = self._wanted.get(group, [])
        slots = [slot for slot in self._of(group) if slot.replaces is None]
        for slot, tier in zip(slots, wanted, strict=False):
            if tier.rank >= slot.tier.rank:
                slot.promote(tier)
            else:  # what is warm cannot become colder
                self._leave(slot)
                self._add(group, tier)
        for slot in slots[len(wanted) :]:
            self._leave(slot)
        for tier in wanted[len(slots) :]:
            self._add(group, tier)

    def _add(self, group: str, tier: Tier) -> Slot:
        name = next(name for number in count() if (name := f"{group}-{number}") not in self._slots)
        slot = self._slots[name] = Slot(
            name, group, tier, self.starter, self._config, self._clock, proven=group in self._proven
        )
        slot.on_change = self._on_change
        slot.task.add_done_callback(lambda task: self._on_empty(slot, task))
        return slot

    def _leave(self, slot: Slot) -> None:
        for other in self._slots.values():
            if other.replaces is slot:
                other.leave()
        slot.leave()

    def _on_empty(self, slot: Slot, task: asyncio.Task[None]) -> None:
        del self._slots[slot.name]
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            if not isinstance(error, WorkerStartError):
                log.error("%s cannot be kept", slot.name, exc_info=error)
            self._failure.set_exception(error)
            self._failure.exception()  # it may be that nobody waits
        self._on_change()

    def _on_change(self) -> None:
        """A worker is warmer than before, or gone."""
        for slot in list(self._slots.values()):
            old = slot.replaces
            if slot.warm:
                self._proven.add(slot.group)
                if old is not None:
                    slot.replaces = None
                    old.leave()
            elif old is not None and slot.member.failed:
                # Such as for want of memory for both: one after the other, then.
                slot.replaces = None
                slot.leave()
                old.refresh()
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now_s = self._clock()
            for member in self._upkeep.silent(self.members, now_s):
                log.error("%s gives no sign of life: killed", member.slot)
                member.hung = True
                member.kill()
            for member, why in self._upkeep.worn(self.members, now_s):
                self.replace(member.slot, why)
