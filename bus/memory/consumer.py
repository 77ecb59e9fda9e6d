"""Serving one function in this process, with the lane policy that the JetStream consumer uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from bus.contracts import Lane
from bus.lanes import LanePolicy
from bus.memory.work import Message, WorkQueue
from bus.ports import Delivery, OnDelivery

log = logging.getLogger("omnibus.bus")


class MemorySettlement:
    """How the receiver answers one delivery; only the first answer counts."""

    def __init__(self, queue: WorkQueue, message: Message) -> None:
        self._queue = queue
        self._message = message
        self._attempt = message.attempts
        self.settled = False

    async def ack(self) -> None:
        """Done: never deliver it again."""
        self._finish()

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after the delay."""
        if not self.settled:
            self.settled = True
            self._queue.give_back(self._message, self._attempt, delay_s)

    async def term(self) -> None:
        """Give up: never deliver it again."""
        self._finish()

    def expire(self) -> None:
        """Nobody answered: deliver it again once the ack wait is over, unless an answer comes before."""
        self._queue.give_back(self._message, self._attempt, self._queue.ack_wait_s)

    def _finish(self) -> None:
        if not self.settled:
            self.settled = True
            self._queue.finish(self._message)


class MemoryConsumer:
    """A function being served; made by `MemoryBus.serve`."""

    def __init__(self, queue: WorkQueue, slots: int, on_delivery: OnDelivery, lanes: Iterable[Lane]) -> None:
        self._queue = queue
        self._on_delivery = on_delivery
        self._policy = LanePolicy(slots, lanes)
        self._running: dict[asyncio.Task[None], MemorySettlement] = {}
        self._pulling = True
        self._pull_soon = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        queue.subscribe(self._soon)
        self._soon()

    @property
    def busy(self) -> int:
        """Deliveries that have not been settled."""
        return len(self._running)

    @property
    def full(self) -> bool:
        """Whether the next message of some lane has to wait."""
        return self._policy.full

    async def stop_pulling(self) -> None:
        """Take nothing new; what runs goes on."""
        self._pulling = False
        self._queue.unsubscribe(self._soon)

    async def drain(self, grace_s: float) -> None:
        """Stop pulling and wait for what runs; what is not done in time is handed back."""
        await self.stop_pulling()
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d messages handed back after %g s", len(self._running), grace_s)
        await self.close()

    async def close(self) -> None:
        """Stop now; what runs is cancelled and handed back."""
        await self.stop_pulling()
        running = dict(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for settlement in running.values():
            await settlement.nak()

    def _soon(self) -> None:
        if self._pulling and not self._pull_soon:
            self._pull_soon = True
            self._loop.call_soon(self._pull)

    def _pull(self) -> None:
        self._pull_soon = False
        while self._pulling and self._pull_once():
            pass

    def _pull_once(self) -> bool:
        """Share the free slots and fill them; whether a message was taken."""
        for lane, state in self._policy.lanes.items():
            waiting = self._queue.waiting(lane)
            # A pull beyond what waits goes back at once; each lane keeps one, as at the server.
            if state.pulled > max(1, waiting):
                self._policy.expired(lane, state.pulled - max(1, waiting))
            state.waiting = waiting
        self._policy.share()
        taken = False
        for lane, state in self._policy.lanes.items():
            while state.pulled and self._queue.waiting(lane):
                self._start(lane)
                taken = True
        return taken

    def _start(self, lane: Lane) -> None:
        message, delivery = self._queue.take(lane)
        self._policy.arrived(lane, self._queue.waiting(lane))
        settlement = MemorySettlement(self._queue, message)
        task = self._loop.create_task(self._run(delivery, settlement))
        self._running[task] = settlement
        self._idle.clear()
        task.add_done_callback(self._finished)

    async def _run(self, delivery: Delivery, settlement: MemorySettlement) -> None:
        await self._on_delivery(delivery, settlement)

    def _finished(self, task: asyncio.Task[None]) -> None:
        settlement = self._running.pop(task)
        self._policy.settled()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The receiver settles every message; this is a defect in it, and the message must not be lost.
            log.error("a message was not settled", exc_info=error)
        if not settlement.settled:
            settlement.expire()
        if not self._running:
            self._idle.set()
        self._soon()
