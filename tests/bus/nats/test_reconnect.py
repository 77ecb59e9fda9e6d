"""A connection that breaks while the server lives on: nothing is lost, nothing is delivered for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.contracts import Lane
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.subjects import work
from tests.bus.behaviour.receiver import FUNCTION, Receiver, publish_work, until, until_backlog
from tests.bus.nats.proxy import Proxy, proxy
from tests.bus.nats_server import nats_server


@dataclass
class Both:
    """A bus whose connection can be cut, and one that is always connected."""

    shaky: NatsBus
    steady: NatsBus
    network: Proxy


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    with nats_server(tmp_path / "nats") as url:
        async with (
            proxy(url) as network,
            NatsBus(NatsConfig(url=url)) as steady,
            NatsBus(NatsConfig(url=network.url)) as shaky,
        ):
            await steady.setup()
            await steady.ensure_function(FUNCTION)
            yield Both(shaky, steady, network)


async def until_reconnected(both: Both) -> None:
    """Cut the connection and wait until the new one carries messages, so that none is sent into the old one."""
    heard: list[bytes] = []
    subscription = await both.shaky.listen("token.back", lambda _, data, headers: heard.append(data))
    both.network.cut()
    async with asyncio.timeout(20):
        while not heard:
            await both.steady.broadcast("token.back", b"?")
            await asyncio.sleep(0.02)
    await subscription.close()


async def test_who_listens_is_told_that_something_may_have_been_missed(both: Both) -> None:
    told: list[str] = []
    kept = await both.shaky.listen("token.kept", lambda *_: None, lambda: told.append("kept"))
    closed = await both.shaky.listen("token.closed", lambda *_: None, lambda: told.append("closed"))
    await closed.close()
    assert not told
    await until_reconnected(both)
    await until(lambda: told)
    assert told == ["kept"]
    await kept.close()


async def test_pulls_of_a_broken_connection_bring_no_more_messages_than_slots(both: Both) -> None:
    receiver = Receiver(settle=lambda delivery: "ack" if delivery.data.startswith(b"probe") else "hold")
    consumer = await both.shaky.serve(FUNCTION, 5, receiver)
    for number in range(4):
        await until_reconnected(both)
        await publish_work(both.steady, b"probe%d" % number)
        await receiver.until(number + 1)
        await until_backlog(both.steady, Lane.INTERACTIVE, 0, 0)
    await publish_work(both.steady, *(str(number).encode() for number in range(12)))
    await until_backlog(both.steady, Lane.INTERACTIVE, 9, 3)
    receiver.release()
    await until_backlog(both.steady, Lane.INTERACTIVE, 0, 0)
    assert [delivery.attempt for delivery in receiver.seen] == [1] * 16
    await consumer.close()


async def test_changes_of_a_bucket_in_a_time_without_connection_are_told_after_it(both: Both) -> None:
    bucket = await both.steady.bucket("cancels")
    await bucket.put("stays", b"1")
    await bucket.put("goes", b"1")
    told: dict[str, bytes | None] = {}
    watch = await (await both.shaky.bucket("cancels")).watch(told.__setitem__)
    assert told == {"stays": b"1", "goes": b"1"}
    both.network.shut()
    await bucket.put("comes", b"2")
    await bucket.delete("goes")
    await both.network.let_in()
    await until(lambda: told == {"stays": b"1", "goes": None, "comes": b"2"})
    await watch.close()


async def test_large_messages_that_meet_a_broken_connection_are_stored_after_it(both: Both) -> None:
    both.network.shut()
    data = b"x" * 900_000
    publishing = [
        asyncio.ensure_future(both.shaky.publish(work(FUNCTION, Lane.BATCH), data, message_id=str(number)))
        for number in range(5)
    ]
    await asyncio.wait(publishing, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
    await both.network.let_in()
    assert await asyncio.gather(*publishing) == [True] * 5
    assert (await both.steady.backlog(FUNCTION))[Lane.BATCH] == (5, 0)
