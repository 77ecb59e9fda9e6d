"""Work on every bus: stored once, delivered at least once, settled once."""

from __future__ import annotations

import pytest

from bus.contracts import Lane
from bus.ports import Bus, Delivery, Settlement
from bus.subjects import work
from tests.bus.behaviour.receiver import FUNCTION, Receiver, publish_work, until, until_backlog


async def test_a_message_is_delivered_with_what_it_carries(bus: Bus) -> None:
    receiver = Receiver()
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await bus.publish(work(FUNCTION, Lane.STANDARD), b"data", message_id="1", headers={"ce-type": "x"})
    await receiver.until(1)
    delivery = receiver.seen[0]
    assert (delivery.subject, delivery.data, delivery.attempt) == ("fn.image.encode.standard", b"data", 1)
    assert delivery.headers["ce-type"] == "x"
    assert delivery.queued_s > 1_700_000_000
    await consumer.close()


async def test_work_published_before_anybody_serves_waits(bus: Bus) -> None:
    await publish_work(bus, b"1", b"2", b"3")
    await until_backlog(bus, Lane.INTERACTIVE, 3, 0)
    receiver = Receiver()
    consumer = await bus.serve(FUNCTION, 4, receiver)
    assert await receiver.until(3) == [b"1", b"2", b"3"]
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await consumer.close()


async def test_a_message_id_is_stored_once(bus: Bus) -> None:
    assert await bus.publish(work(FUNCTION, Lane.BATCH), b"x", message_id="same") is True
    assert await bus.publish(work(FUNCTION, Lane.BATCH), b"x", message_id="same") is False
    assert await bus.publish(work(FUNCTION, Lane.INTERACTIVE), b"x", message_id="same") is False
    await until_backlog(bus, Lane.BATCH, 1, 0)


async def test_the_same_id_for_another_function_is_another_message(bus: Bus) -> None:
    await bus.ensure_function("speak")
    await publish_work(bus, b"1")
    await publish_work(bus, b"1", function="speak")
    await until_backlog(bus, Lane.INTERACTIVE, 1, 0, "speak")


async def test_a_nak_delivers_again_and_counts(bus: Bus) -> None:
    receiver = Receiver(settle=lambda delivery: "ack" if delivery.attempt == 3 else "nak")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1")
    await receiver.until(3)
    assert [delivery.attempt for delivery in receiver.seen] == [1, 2, 3]
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await consumer.close()


async def test_a_message_given_up_is_not_delivered_again(bus: Bus) -> None:
    receiver = Receiver(settle=lambda delivery: "term" if delivery.data == b"1" else "ack")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1", b"2")
    await receiver.until(2)
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    assert len(receiver.seen) == 2
    await consumer.close()


async def test_what_nobody_settled_comes_back_after_the_ack_wait(bus: Bus) -> None:
    receiver = Receiver(settle=lambda delivery: "ack" if delivery.attempt == 2 else "nothing")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1")
    await receiver.until(2)
    assert [delivery.attempt for delivery in receiver.seen] == [1, 2]
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await consumer.close()


@pytest.mark.filterwarnings("ignore")
async def test_a_receiver_that_raises_loses_nothing(bus: Bus) -> None:
    def settle(delivery: Delivery) -> str:
        if delivery.attempt == 1:
            raise RuntimeError("a defect")
        return "ack"

    receiver = Receiver(settle=settle)
    consumer = await bus.serve(FUNCTION, 4, receiver)
    await publish_work(bus, b"1")
    await receiver.until(2)
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    await consumer.close()


async def test_work_that_takes_longer_than_the_ack_wait_is_not_delivered_twice(bus: Bus) -> None:
    receiver = Receiver(settle=lambda _: "hold")
    consumer = await bus.serve(FUNCTION, 4, receiver)
    # Two ack waits have passed when a message that nobody settles comes for the third time.
    passed = Receiver(settle=lambda delivery: "ack" if delivery.attempt == 3 else "nothing")
    await bus.ensure_function("clock")
    clock = await bus.serve("clock", 4, passed)
    await publish_work(bus, b"long")
    await receiver.until(1)
    await publish_work(bus, b"tick", function="clock")
    await until(lambda: passed.seen[-1:] and passed.seen[-1].attempt == 3)
    receiver.release()
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    assert len(receiver.seen) == 1
    await clock.close()
    await consumer.close()


async def test_only_the_first_answer_counts(bus: Bus) -> None:
    answered: list[Delivery] = []

    async def receive(delivery: Delivery, settlement: Settlement) -> None:
        await settlement.ack()
        await settlement.nak()
        await settlement.term()
        answered.append(delivery)

    consumer = await bus.serve(FUNCTION, 4, receive)
    await publish_work(bus, b"1", b"2")
    await until(lambda: len(answered) == 2)
    await until_backlog(bus, Lane.INTERACTIVE, 0, 0)
    assert len(answered) == 2
    await consumer.close()


async def test_two_consumers_share_the_work_and_nothing_comes_twice(bus: Bus) -> None:
    one, two = Receiver(), Receiver()
    consumers = [await bus.serve(FUNCTION, 4, receiver) for receiver in (one, two)]
    payloads = [str(number).encode() for number in range(40)]
    await publish_work(bus, *payloads)
    await until(lambda: len(one.seen) + len(two.seen) == 40)
    assert sorted(delivery.data for delivery in one.seen + two.seen) == sorted(payloads)
    for consumer in consumers:
        await consumer.close()
