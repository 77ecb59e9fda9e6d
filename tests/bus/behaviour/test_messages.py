"""Broadcasts and logs on every bus."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bus.contracts import Lane
from bus.errors import BusError, PayloadTooLargeError
from bus.ports import Bus, OnMessage
from bus.subjects import dead, result, token, trace, work
from tests.bus.behaviour.receiver import FUNCTION, until


def _remember(subjects: list[str]) -> OnMessage:
    return lambda subject, data, headers: subjects.append(subject)


async def test_listeners_hear_what_their_pattern_means(bus: Bus) -> None:
    heard: dict[str, list[str]] = {pattern: [] for pattern in ("token.r1", "token.*", "*.r1", "token.>", "result.*")}
    subscriptions = [await bus.listen(pattern, _remember(to)) for pattern, to in heard.items()]
    await bus.broadcast(token("r1"), b"1")
    await bus.broadcast(token("r2"), b"2")
    await bus.publish(result("r1"), b"3", message_id="r1")
    await until(lambda: len(heard["*.r1"]) == 2 and len(heard["token.*"]) == 2)
    assert heard == {
        "token.r1": ["token.r1"],
        "token.*": ["token.r1", "token.r2"],
        "*.r1": ["token.r1", "result.r1"],
        "token.>": ["token.r1", "token.r2"],
        "result.*": ["result.r1"],
    }
    for subscription in subscriptions:
        await subscription.close()


async def test_messages_arrive_in_the_order_they_were_sent(bus: Bus) -> None:
    heard: list[bytes] = []
    subscription = await bus.listen("token.r1", lambda _, data, headers: heard.append(data))
    sent = [str(number).encode() for number in range(500)]
    for data in sent:
        await bus.broadcast(token("r1"), data)
    await until(lambda: len(heard) == 500)
    assert heard == sent
    await subscription.close()


async def test_a_closed_listener_hears_nothing_more(bus: Bus) -> None:
    heard: list[bytes] = []
    other: list[bytes] = []
    closed = await bus.listen("token.*", lambda _, data, headers: heard.append(data))
    kept = await bus.listen("token.*", lambda _, data, headers: other.append(data))
    await closed.close()
    await closed.close()
    await bus.broadcast(token("r"), b"x")
    await until(lambda: other)
    assert heard == []
    await kept.close()


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(bus: Bus) -> None:
    with pytest.raises(PayloadTooLargeError, match="max_payload") as caught:
        await bus.publish(work(FUNCTION, Lane.BATCH), b"x" * (bus.max_payload + 1), message_id="1")
    assert not caught.value.retryable
    assert caught.value.details["limit"] == bus.max_payload
    assert (await bus.backlog(FUNCTION))[Lane.BATCH] == (0, 0)


async def test_a_log_keeps_what_was_published_oldest_first(bus: Bus) -> None:
    for number in range(5):
        await bus.publish(trace("r1"), str(number).encode(), message_id=f"r1.{number}")
    await bus.publish(trace("r2"), b"other", message_id="r2")
    assert await bus.history(trace("r1")) == [("trace.r1", str(number).encode()) for number in range(5)]
    assert await bus.history(trace("r1"), limit=2) == [("trace.r1", b"0"), ("trace.r1", b"1")]
    assert len(await bus.history("trace.*")) == 6
    assert await bus.history(trace("nobody")) == []


async def test_tokens_that_were_only_broadcast_can_be_read_again(bus: Bus) -> None:
    heard: list[str] = []
    subscription = await bus.listen(token("r1"), _remember(heard))
    await bus.broadcast(token("r1"), b"once")
    await bus.broadcast(token("r1"), b"upon")
    await until(lambda: len(heard) == 2)
    assert await bus.history(token("r1")) == [("token.r1", b"once"), ("token.r1", b"upon")]
    await subscription.close()


async def test_dead_letters_are_kept_by_function(bus: Bus) -> None:
    await bus.publish(dead("image.encode"), b"1", message_id="1")
    await bus.publish(dead("speak"), b"2", message_id="2")
    assert await bus.history(dead("image.encode")) == [("dlq.image.encode", b"1")]
    assert len(await bus.history("dlq.>")) == 2


async def test_a_request_has_one_result_whoever_publishes_again(bus: Bus) -> None:
    assert await bus.publish(result("r1"), b"first", message_id="r1.a") is True
    assert await bus.publish(result("r1"), b"second", message_id="r1.b") is False
    assert await bus.history(result("r1")) == [("result.r1", b"first")]


async def test_a_subject_that_no_log_keeps_is_an_error(bus: Bus) -> None:
    with pytest.raises(BusError, match=r"no log keeps nothing\.here"):
        await bus.history("nothing.here")


async def test_who_listens_to_work_hears_its_headers(bus: Bus) -> None:
    heard: list[tuple[bytes, str | None]] = []

    def remember(subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        heard.append((data, headers.get("ce-tenant")))

    subscription = await bus.listen(work(FUNCTION, Lane.BATCH), remember)
    await bus.publish(work(FUNCTION, Lane.BATCH), b"1", message_id="1", headers={"ce-tenant": "a"})
    await bus.publish(work(FUNCTION, Lane.BATCH), b"2", message_id="2")
    await until(lambda: len(heard) == 2)
    assert heard == [(b"1", "a"), (b"2", None)]
    await subscription.close()
