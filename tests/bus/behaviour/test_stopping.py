"""Stopping a consumer on every bus loses nothing."""

from __future__ import annotations

import asyncio

from bus.contracts import Lane
from bus.ports import Bus
from tests.bus.behaviour.receiver import FUNCTION, Receiver, publish_work, until_backlog


async def test_drain_waits_for_what_runs_and_takes_nothing_new(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"running")
    await receiver.until(1)
    draining = asyncio.create_task(consumer.drain(20))
    await asyncio.sleep(0)
    await publish_work(bus, b"late")
    receiver.release()
    await draining
    assert [delivery.data for delivery in receiver.seen] == [b"running"]
    successor = Receiver()
    following = await bus.serve(FUNCTION, 4, successor)
    assert await successor.until(1) == [b"late"]
    await following.close()


async def test_what_is_not_done_in_the_grace_period_is_handed_back(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1")
    await receiver.until(1)
    await consumer.drain(0.01)
    assert consumer.busy == 0
    successor = Receiver()
    following = await bus.serve(FUNCTION, 4, successor)
    await successor.until(1)
    assert successor.seen[0].attempt == 2
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await following.close()


async def test_closing_hands_back_and_closing_twice_is_fine(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1")
    await receiver.until(1)
    await consumer.close()
    await consumer.close()
    assert receiver.open == []
    successor = Receiver()
    following = await bus.serve(FUNCTION, 4, successor)
    assert await successor.until(1) == [b"1"]
    await following.close()
