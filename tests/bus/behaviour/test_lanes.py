"""Slots and lanes on every bus."""

from __future__ import annotations

from bus.contracts import Lane
from bus.ports import Bus
from tests.bus.behaviour.receiver import FUNCTION, Receiver, publish_work, until, until_backlog


async def test_never_more_than_the_slots_at_once(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    await publish_work(bus, *(str(number).encode() for number in range(12)))
    consumer = await bus.serve(FUNCTION, 5, receiver, lanes=[Lane.INTERACTIVE])
    await receiver.until(5)
    await until_backlog(bus, Lane.INTERACTIVE, 7, 5)
    assert consumer.busy == 5
    receiver.release()
    await receiver.until(12)
    assert receiver.most_at_once <= 5
    await consumer.close()


async def test_a_consumer_is_full_when_the_next_message_of_a_lane_has_to_wait(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"first")
    await receiver.until(1)
    await until(lambda: not consumer.full)
    await publish_work(bus, b"second", b"third")
    await until(lambda: consumer.full)
    assert (consumer.busy, len(receiver.seen)) == (2, 2)
    receiver.release()
    await receiver.until(3)
    await until(lambda: not consumer.busy and not consumer.full)
    await consumer.close()


async def test_interactive_never_waits_behind_batch(bus: Bus) -> None:
    await publish_work(bus, *(f"b{number}".encode() for number in range(20)), lane=Lane.BATCH)
    receiver = Receiver(settle=lambda delivery: "ack" if delivery.data == b"now" else "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await until(lambda: receiver.open)
    await publish_work(bus, b"now", lane=Lane.INTERACTIVE)
    await until(lambda: any(delivery.data == b"now" for delivery in receiver.seen))
    receiver.release()
    await consumer.close()


async def test_batch_is_not_starved_by_interactive(bus: Bus) -> None:
    await publish_work(bus, *(f"i{number}".encode() for number in range(200)), lane=Lane.INTERACTIVE)
    await publish_work(bus, *(f"b{number}".encode() for number in range(10)), lane=Lane.BATCH)
    receiver = Receiver()
    consumer = await bus.serve(FUNCTION, 4, receiver)
    order = [payload[:1] for payload in await receiver.until(210)]
    assert b"b" in order[:50]
    await consumer.close()


async def test_a_consumer_of_some_lanes_leaves_the_others_alone(bus: Bus) -> None:
    await publish_work(bus, b"batch", lane=Lane.BATCH)
    await publish_work(bus, b"interactive", lane=Lane.INTERACTIVE)
    receiver = Receiver()
    consumer = await bus.serve(FUNCTION, 4, receiver, lanes=[Lane.INTERACTIVE])
    assert await receiver.until(1) == [b"interactive"]
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await until_backlog(bus, Lane.BATCH, 1, 0)
    await consumer.close()
