"""Serving one function: pulls that follow its free slots, over all of its lanes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bus.contracts import Lane
from bus.errors import BusError, BusUnavailableError
from bus.lanes import LanePolicy
from bus.nats.connection import Client, translated
from bus.nats.settlement import Heartbeats, NatsSettlement, read_delivery
from bus.ports import OnDelivery
from bus.subjects import function_stream

log = logging.getLogger("omnibus.bus")

PULL_EXPIRES_S = 30.0
"""How long a pull waits at the server."""

IDLE_HEARTBEAT_S = 5.0
"""How often the server says that a waiting pull is still there."""

_SECOND_NS = 1_000_000_000
_OVERDUE_PULL_S = 0.2


class _LanePulls:
    """The waiting pulls of one lane and the inbox where their messages arrive."""

    def __init__(self, lane: Lane, subject: str) -> None:
        self.lane = lane
        self.subject = subject
        self.inbox = ""
        self.heard_s = 0.0
        self.subscription: Subscription | None = None


class NatsConsumer:
    """A function being served; made by `NatsBus.serve`."""

    def __init__(
        self,
        client: Client,
        heartbeats: Heartbeats,
        function: str,
        slots: int,
        on_delivery: OnDelivery,
        lanes: Iterable[Lane],
    ) -> None:
        self._client = client
        self._heartbeats = heartbeats
        self._function = function
        self._on_delivery = on_delivery
        self._policy = LanePolicy(slots, lanes)
        stream = function_stream(function)
        self._pulls = {
            lane: _LanePulls(lane, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{lane.value}") for lane in self._policy.lanes
        }
        self._running: dict[asyncio.Task[None], NatsSettlement] = {}
        self._sharing: set[asyncio.Task[None]] = set()
        self._pulling = False
        self._share_soon = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()

    @property
    def busy(self) -> int:
        """Deliveries that have not been settled."""
        return len(self._running)

    @property
    def full(self) -> bool:
        """Whether the next message of some lane has to wait."""
        return self._policy.full

    async def open(self) -> None:
        """Start to pull."""
        self._pulling = True
        for pulls in self._pulls.values():
            await self._listen(pulls)
        await self._share()

    async def revive(self) -> None:
        """The connection is a new one: ask again, where only the answers to new pulls arrive.

        A server that was restarted has forgotten our pulls. One that was not serves the old ones, too, as long as
        somebody listens where they are answered: more messages than slots, handed back at the price of an attempt.
        """
        for pulls in self._pulls.values():
            await self._renew(pulls)
        await self._share()

    async def watch(self) -> None:
        """Ask again in lanes that have been silent for longer than the server's heartbeats allow.

        A pull can be lost without a word: a leader change, a restart, a consumer recreated.
        """
        now = self._loop.time()
        for pulls in self._pulls.values():
            if not self._pulling or not self._client.is_connected:
                return
            if self._policy.lanes[pulls.lane].pulled and now - pulls.heard_s > 2.5 * IDLE_HEARTBEAT_S:
                log.warning("lane %s of %s was silent: pulling again", pulls.lane.value, self._function)
                await self._renew(pulls)
        await self._share()

    async def stop_pulling(self) -> None:
        """Take nothing new; what runs goes on, and its in-progress acks too.

        The server drops pulls that nobody listens to; what it sent before it knew is handed back.
        """
        self._pulling = False
        for pulls in self._pulls.values():
            subscription, pulls.subscription = pulls.subscription, None
            if subscription is not None:
                await self._leave(subscription)

    async def drain(self, grace_s: float) -> None:
        """Stop pulling and wait for what runs; what is not done in time is handed back."""
        await self.stop_pulling()
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%s: %d messages handed back after %g s", self._function, len(self._running), grace_s)
        await self.close()

    async def close(self) -> None:
        """Stop now; what runs is cancelled and handed back."""
        self._pulling = False
        running = dict(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for settlement in running.values():
            try:
                await settlement.nak()
            except BusError as error:
                log.warning("%s: a message comes back only after the ack wait: %s", self._function, error)
        for pulls in self._pulls.values():
            subscription, pulls.subscription = pulls.subscription, None
            if subscription is not None and not self._client.is_closed:
                await subscription.unsubscribe()

    async def _listen(self, pulls: _LanePulls) -> None:
        inbox = self._client.new_inbox()
        with translated(f"serving {self._function}"):
            subscription = await self._client.subscribe(inbox, cb=self._receiver(pulls, inbox))
        if self._pulling:
            pulls.inbox, pulls.subscription = inbox, subscription
        else:  # stopped meanwhile
            await self._leave(subscription)

    async def _renew(self, pulls: _LanePulls) -> None:
        """Give up the lane's pulls, whatever became of them: nothing listens any more where they are answered."""
        former = pulls.subscription
        await self._listen(pulls)
        self._policy.reset(pulls.lane)
        if former is not None:
            await self._leave(former)

    async def _leave(self, subscription: Subscription) -> None:
        """End a subscription; messages that have come are still received, where there is a connection."""
        try:
            with translated("ending a pull"):
                if self._client.is_connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]
                elif not self._client.is_closed:
                    await subscription.unsubscribe()
        except BusError as error:
            log.warning("%s: %s", self._function, error)

    def _receiver(self, pulls: _LanePulls, inbox: str) -> Any:
        async def receive(message: Msg) -> None:
            current = inbox == pulls.inbox
            if current:
                pulls.heard_s = self._loop.time()
            if message.subject != inbox:
                await self._on_message(pulls.lane, message, pulled=current)
            elif current:
                self._on_status(pulls.lane, message)

        return receive

    def _on_status(self, lane: Lane, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            return  # idle heartbeat: the pull still waits
        left = headers.get("Nats-Pending-Messages")
        if left is not None:
            self._policy.expired(lane, int(left))
        else:
            # 409 (consumer or server changed) and 503 (JetStream starting) end every pull of the lane.
            self._policy.reset(lane)
        self._loop.call_later(0.0 if status == "408" else _OVERDUE_PULL_S, self._soon)

    async def _on_message(self, lane: Lane, message: Msg, *, pulled: bool) -> None:
        delivery = read_delivery(message)
        settlement = NatsSettlement(self._client, message.reply, self._heartbeats)
        if not self._pulling or not self._policy.arrived(lane, delivery.pending, pulled=pulled):
            await settlement.nak()
            return
        self._heartbeats.add(settlement)
        task = self._loop.create_task(self._on_delivery(delivery, settlement))
        self._running[task] = settlement
        self._idle.clear()
        task.add_done_callback(self._finished)
        self._soon()

    def _finished(self, task: asyncio.Task[None]) -> None:
        settlement = self._running.pop(task)
        self._policy.settled()
        self._heartbeats.remove(settlement)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The receiver settles every message itself; this is a defect in it, and the message must not be lost.
            log.error("%s: a message was not settled", self._function, exc_info=error)
        if not self._running:
            self._idle.set()
        self._soon()

    def _soon(self) -> None:
        if not self._share_soon and self._pulling:
            self._share_soon = True
            self._loop.call_soon(self._share_now)

    def _share_now(self) -> None:
        self._share_soon = False
        task = self._loop.create_task(self._share())
        self._sharing.add(task)
        task.add_done_callback(self._shared)

    def _shared(self, task: asyncio.Task[None]) -> None:
        self._sharing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", self._function, error)  # the watchdog pulls again

    async def _share(self) -> None:
        if not self._pulling or not self._client.is_connected:
            return
        shares = self._policy.share()
        while shares:
            lane, count = next(iter(shares.items()))
            pulls = self._pulls[lane]
            pulls.heard_s = self._loop.time()
            body = {
                "batch": count,
                "expires": int(PULL_EXPIRES_S * _SECOND_NS),
                "idle_heartbeat": int(IDLE_HEARTBEAT_S * _SECOND_NS),
            }
            try:
                await self._client.publish(pulls.subject, json.dumps(body).encode(), reply=pulls.inbox)
            except Exception as error:
                for unsent, slots in shares.items():
                    self._policy.unsent(unsent, slots)
                raise BusUnavailableError(f"pulling for {self._function}: {error}") from error
            del shares[lane]
