"""One worker as its pool knows it, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from bus.contracts import Tier
from bus.errors import PoolError, WorkerStartError
from warmpool.process import NO_ROOM, Process
from warmpool.protocol import Channel, Failed, Promote, Reached
from warmpool.record import FlightRecord, Vitals
from warmpool.starter import Starter

log = logging.getLogger("omnibus.pool")


class Member:
    """A worker of a pool.

    Args:
        slot: Its place in the pool, such as `media-0`.
        group: Which functions it serves.
        goal: How warm it is to become.
        clock: Seconds on the host's monotonic clock.
        on_change: Called when it has become warmer, or could not.

    Attributes:
        slot: Its place in the pool.
        group: Which functions it serves.
        goal: How warm it is to become.
        tier: How warm it is; None: it has just been started.
        timings_s: Seconds by phase of its way there.
        started_s: When it was asked for.
        failure: Why it could not become warmer.
        leaving: Whether it has been told to stop.
        hung: Whether it was killed because it gave no sign of life.
        process: None before it is started.
        record: What it does and did.
    """

    def __init__(
        self,
        slot: str,
        group: str,
        goal: Tier,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.slot, self.group, self.goal = slot, group, goal
        self.tier: Tier | None = None
        self.timings_s: Mapping[str, float] = {}
        self._clock, self.started_s = clock, clock()
        self.failure: Failed | None = None
        self.leaving = self.hung = False
        self.process: Process | None = None
        self.record, self._descriptor = FlightRecord.create()
        self._channel: Channel | None = None
        self._listening: asyncio.Task[None] | None = None
        self._on_change = on_change
        self._last = Vitals()

    @property
    def vitals(self) -> Vitals:
        """How it is."""
        return self._last if self.record.closed else self.record.vitals

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.returncode is None

    @property
    def failed(self) -> bool:
        """Whether it could not become as warm as it should, or died before it was."""
        dead = self.process is not None and self.process.returncode is not None
        return self.failure is not None or (dead and not self.leaving)

    async def start(self, starter: Starter, log_path: Path) -> None:
        """Bring it to life and tell it how warm it is to become.

        Raises:
            WorkerStartError: It cannot be started; (retryable) another one in its place may.
        """
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        try:
            with theirs:
                self.process = await starter.start(self.group, theirs.fileno(), self._descriptor, log_path)
        except OSError as error:  # of the log file, or no descriptors left
            raise WorkerStartError(
                f"{self.slot} cannot be started: {error}", retryable=error.errno in NO_ROOM
            ) from error
        finally:
            os.close(self._descriptor)
        await self._channel.open()
        self._channel.say(Promote(self.goal))
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name=f"listen-{self.slot}")

    def promote(self, tier: Tier) -> None:
        """Have it become warmer; it stays as it is when it is that warm already."""
        if tier.rank > self.goal.rank:
            self.goal = tier
            if self._channel is not None:
                self._channel.say(Promote(tier))

    def kill(self) -> None:
        """End it now."""
        if self.process is not None and self.alive:
            self.process.kill()

    async def ended(self) -> int:
        """Wait for its end; returns its exit status."""
        assert self.process is not None
        status = await self.process.wait()
        if self._listening is not None:
            await asyncio.wait([self._listening])  # what it said last is heard
        return status

    async def close(self) -> None:
        """Hang up and give its record up; closing twice is fine."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self._channel is not None:
            await self._channel.close()
        self._last = self.vitals
        self.record.close()

    async def _listen(self) -> None:
        assert self._channel is not None
        with suppress(asyncio.CancelledError):
            while True:
                try:
                    message = await self._channel.hear()
                except PoolError as error:
                    log.warning("%s: %s", self.slot, error)
                    continue
                match message:
                    case None:
                        return
                    case Reached(tier, timings_s):
                        if self.tier is None:  # what went before the worker itself could take the time
                            start_s = self._clock() - self.started_s - sum(timings_s.values())
                            timings_s = {"start": max(0.0, start_s), **timings_s}
                        self.tier, self.timings_s = tier, {**self.timings_s, **timings_s}
                        log.info("%s is %s after %s", self.slot, tier.value, _words(timings_s))
                    case Failed():
                        self.failure = message
                    case Promote():
                        log.warning("%s gives orders to its pool", self.slot)
                self._on_change()


def _words(timings_s: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {seconds * 1e3:.0f} ms" for phase, seconds in timings_s.items()) or "no time"
