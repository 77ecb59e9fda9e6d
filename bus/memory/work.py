"""Work of one function: its lanes, who serves it, and what comes back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bus.contracts import Lane
from bus.ports import Delivery


@dataclass(eq=False)
class Message:
    """A stored message of work.

    Attributes:
        subject: Where it was published.
        data: The payload.
        headers: Its headers.
        lane: The lane of its subject.
        stored_s: Unix time at which it was stored.
        attempts: How often it was delivered.
    """

    subject: str
    data: bytes
    headers: Mapping[str, str]
    lane: Lane
    stored_s: float
    attempts: int = 0


class WorkQueue:
    """What a function's stream is in JetStream: every message stays until somebody acks it."""

    def __init__(self, ack_wait_s: float) -> None:
        """An empty queue.

        Args:
            ack_wait_s: A message whose receiver gave no sign of life for so long is delivered again.
        """
        self.ack_wait_s = ack_wait_s
        self._waiting: dict[Lane, deque[Message]] = {lane: deque() for lane in Lane}
        self._in_flight: dict[Lane, set[Message]] = {lane: set() for lane in Lane}
        self._timers: set[asyncio.TimerHandle] = set()
        self._listeners: deque[Callable[[], None]] = deque()

    def add(self, subject: str, data: bytes, headers: Mapping[str, str], lane: Lane) -> None:
        """Store a new message."""
        self._waiting[lane].append(Message(subject, data, dict(headers), lane, time.time()))
        self._changed()

    def waiting(self, lane: Lane) -> int:
        """Messages that could be delivered now."""
        return len(self._waiting[lane])

    def in_flight(self, lane: Lane) -> int:
        """Messages that were delivered and are not settled, those that wait to come back included."""
        return len(self._in_flight[lane])

    def take(self, lane: Lane) -> tuple[Message, Delivery]:
        """The oldest message of a lane; the caller has seen that there is one."""
        message = self._waiting[lane].popleft()
        message.attempts += 1
        self._in_flight[lane].add(message)
        delivery = Delivery(
            subject=message.subject,
            data=message.data,
            headers=message.headers,
            attempt=message.attempts,
            queued_s=message.stored_s,
            pending=len(self._waiting[lane]),
        )
        return message, delivery

    def finish(self, message: Message) -> None:
        """It was acked or given up."""
        self._in_flight[message.lane].discard(message)
        # An answer that comes after the ack wait still counts, as at the server.
        if message in self._waiting[message.lane]:
            self._waiting[message.lane].remove(message)

    def give_back(self, message: Message, attempt: int, delay_s: float) -> None:
        """Deliver it again after the delay, before messages that were never delivered.

        Args:
            message: What to deliver.
            attempt: Which delivery says so; a later one is not disturbed.
            delay_s: When, from now.
        """
        if delay_s <= 0:
            self._return(message, attempt)
            return
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers.discard(timer)
            self._return(message, attempt)

        timer = loop.call_later(delay_s, due)
        self._timers.add(timer)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call when there may be something to take."""
        self._listeners.append(on_change)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        """Stop to call."""
        if on_change in self._listeners:
            self._listeners.remove(on_change)

    def close(self) -> None:
        """Forget the timers."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _return(self, message: Message, attempt: int) -> None:
        if message.attempts != attempt or message not in self._in_flight[message.lane]:
            return
        self._in_flight[message.lane].discard(message)
        self._waiting[message.lane].appendleft(message)
        self._changed()

    def _changed(self) -> None:
        # The one that was asked first last time is asked last now, so that idle receivers take turns.
        self._listeners.rotate(-1)
        for listener in tuple(self._listeners):
            listener()
