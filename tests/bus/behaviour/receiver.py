"""A receiver of work that remembers, and ways to wait for what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bus.contracts import Lane
from bus.ports import Bus, Delivery, Settlement
from bus.subjects import work

FUNCTION = "image.encode"


@dataclass
class Receiver:
    """Keeps every delivery; a test settles them or says how they are settled."""

    settle: Callable[[Delivery], str] = lambda _: "ack"
    seen: list[Delivery] = field(default_factory=list)
    open: list[tuple[Delivery, Settlement]] = field(default_factory=list)
    most_at_once: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _release: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, delivery: Delivery, settlement: Settlement) -> None:
        self.seen.append(delivery)
        self.open.append((delivery, settlement))
        self.most_at_once = max(self.most_at_once, len(self.open))
        self._changed.set()
        try:
            answer = self.settle(delivery)
            if answer == "hold":
                await self._release.wait()
                answer = "ack"
            if answer != "nothing":
                await getattr(settlement, answer)()
        finally:
            self.open.remove((delivery, settlement))

    def release(self) -> None:
        """Ack whatever is held, now and from now on."""
        self._release.set()

    async def until(self, count: int) -> list[bytes]:
        """Wait for so many deliveries; their payloads."""
        async with asyncio.timeout(20):
            while len(self.seen) < count:
                self._changed.clear()
                await self._changed.wait()
        return [delivery.data for delivery in self.seen]


async def publish_work(bus: Bus, *payloads: bytes, lane: Lane = Lane.INTERACTIVE, function: str = FUNCTION) -> None:
    for payload in payloads:
        assert await bus.publish(work(function, lane), payload, message_id=payload.decode())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def until_backlog(bus: Bus, lane: Lane, waiting: int, in_flight: int, function: str = FUNCTION) -> None:
    """The server counts a little later than it confirms."""
    async with asyncio.timeout(20):
        while (await bus.backlog(function))[lane] != (waiting, in_flight):
            await asyncio.sleep(0.005)
