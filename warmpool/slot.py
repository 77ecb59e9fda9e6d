"""One place of a pool: a worker, and the next one when it dies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bus.contracts import Tier
from bus.errors import WorkerStartError
from warmpool.adopted import reap_strays
from warmpool.backoff import Backoff
from warmpool.log_tail import log_tail
from warmpool.member import Member
from warmpool.process import stop
from warmpool.starter import Starter

log = logging.getLogger("omnibus.pool")


@dataclass(frozen=True, kw_only=True)
class SlotConfig:
    """How a place is kept filled.

    Attributes:
        logs: Folder of the workers' log files, one a slot.
        grace_s: How long a worker may take to stop.
        start_attempts: A worker that fails this often in a row before it was ever stable fails its slot. One that was
            stable is started again for ever: what it lacks now may come back, and the others serve meanwhile.
        on_end: Told of every worker that ended, with its exit status, while its record can still be read.
    """

    logs: Path
    grace_s: float = 15.0
    start_attempts: int = 3
    on_end: Callable[[Member, int], None] = lambda member, status: None


class Slot:
    """A place that is filled until it is left.

    Args:
        name: Such as `media-0`.
        group: Which functions its workers serve.
        tier: How warm they become.
        starter: Brings them to life.
        config: How it is kept.
        clock: Seconds on the host's monotonic clock.
        proven: Whether a worker of its group was ever as warm as it should be: then no failure fails the slot.

    Attributes:
        name: Such as `media-0`.
        group: Which functions its workers serve.
        tier: How warm they become.
        on_change: Called when a worker has become warmer, or could not.
        member: The worker that is there now, or was there last.
        replaces: A slot that is to be left when this one is as warm as it should be.
    """

    def __init__(
        self,
        name: str,
        group: str,
        tier: Tier,
        starter: Starter,
        config: SlotConfig,
        clock: Callable[[], float] = time.monotonic,
        *,
        proven: bool = False,
    ) -> None:
        self.name, self.group, self.tier = name, group, tier
        self.on_change: Callable[[], None] = lambda: None
        self.member = Member(name, group, tier, clock, self._on_change)
        self.replaces: Slot | None = None
        self._starter, self._config, self._clock = starter, config, clock
        self._proven = proven
        self._left = asyncio.Event()
        self._stopping: set[asyncio.Task[int]] = set()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"keep-{name}")

    @property
    def wanted(self) -> bool:
        """Whether it is to be filled."""
        return not self._left.is_set()

    @property
    def task(self) -> asyncio.Task[None]:
        """Done when the slot is empty for good; raises WorkerStartError when it cannot be filled."""
        return self._task

    @property
    def warm(self) -> bool:
        """Whether its worker is as warm as it should be."""
        tier = self.member.tier
        return self.member.alive and tier is not None and tier.rank >= self.tier.rank

    def promote(self, tier: Tier) -> None:
        """Have its workers become warmer."""
        if tier.rank > self.tier.rank:
            self.tier = tier
            self.member.promote(tier)

    def leave(self) -> None:
        """Have its worker finish what it has, take nothing new, and end; nobody takes its place."""
        if self._left.is_set():
            return
        self._left.set()
        self._stop()

    def refresh(self) -> None:
        """Have its worker finish what it has and end; a fresh one takes its place then."""
        self._stop()

    async def close(self) -> None:
        """Leave, and wait until the slot is empty."""
        self.leave()
        await asyncio.wait([self._task])
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _stop(self) -> None:
        member = self.member
        if member.process is None or member.leaving:  # a second signal would cut it off
            return
        member.leaving = True
        stopping = asyncio.get_running_loop().create_task(stop(member.process, self._config.grace_s))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def _on_change(self) -> None:
        self._proven = self._proven or self.warm
        self.on_change()

    async def _keep(self) -> None:
        backoff = Backoff()
        while self.wanted:
            status = await self._fill()
            if not self.wanted:
                return
            delay_s = backoff.died(self._clock() - self.member.started_s)
            if status == 1 and not self._proven and backoff.hopeless(self._config.start_attempts):
                raise WorkerStartError(
                    f"{self.name} failed {backoff.failures} times in a row; its log is {self._log_path}:\n"
                    f"{log_tail(self._log_path)}"
                )
            log.warning("%s ended with status %s; starting it again in %.1f s", self.name, status, delay_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._left.wait()
            self.member = Member(self.name, self.group, self.tier, self._clock, self._on_change)

    async def _fill(self) -> int:
        """The life of one worker; its exit status."""
        member = self.member
        try:
            if not await self._start(member):
                return 0
            status = await member.ended()
            self._config.on_end(member, status)
            self.on_change()
            return status
        except WorkerStartError as error:
            log.warning("%s: %s", self.name, error.message)
            return 0 if error.retryable else 1
        finally:
            await member.close()
            reap_strays()

    async def _start(self, member: Member) -> bool:
        """Bring the worker to life, unless the slot is left before it is; whether it is."""
        starting = asyncio.ensure_future(member.start(self._starter, self._log_path))
        left = asyncio.ensure_future(self._left.wait())
        await asyncio.wait([starting, left], return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        if not starting.cancelled():
            starting.result()
        if not self.wanted:
            self._stop()
        return member.process is not None

    @property
    def _log_path(self) -> Path:
        return self._config.logs / f"{self.name}.log"
