"""Buckets with compare-and-set on every bus."""

from __future__ import annotations

import asyncio

import pytest

from bus.errors import BusError, ConflictError
from bus.ports import Bus
from tests.bus.behaviour.receiver import until


async def test_values_are_read_with_their_revision(bus: Bus) -> None:
    bucket = await bus.bucket("requests")
    assert await bucket.get("r1") is None
    revision = await bucket.put("r1", b"a")
    assert await bucket.get("r1") == (b"a", revision)
    assert await bucket.put("r1", b"b") > revision
    assert await bucket.entries() == {"r1": b"b"}


async def test_of_two_creators_one_wins(bus: Bus) -> None:
    bucket = await bus.bucket("joins")
    outcomes = await asyncio.gather(
        *(bucket.create("join", str(number).encode()) for number in range(8)), return_exceptions=True
    )
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) and outcome.retryable for outcome in outcomes) == 7


async def test_an_update_needs_the_revision_that_is_there(bus: Bus) -> None:
    bucket = await bus.bucket("joins")
    first = await bucket.create("join", b"1")
    second = await bucket.update("join", b"2", first)
    with pytest.raises(ConflictError, match="joins/join"):
        await bucket.update("join", b"3", first)
    assert await bucket.get("join") == (b"2", second)


async def test_a_hundred_increments_by_compare_and_set_count_to_a_hundred(bus: Bus) -> None:
    bucket = await bus.bucket("joins")
    await bucket.put("count", b"0")

    async def increment() -> None:
        while True:
            entry = await bucket.get("count")
            assert entry is not None
            value, revision = entry
            try:
                await bucket.update("count", str(int(value) + 1).encode(), revision)
            except ConflictError:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(100)))
    entry = await bucket.get("count")
    assert entry is not None
    assert entry[0] == b"100"


async def test_a_removed_key_can_be_created_again(bus: Bus) -> None:
    bucket = await bus.bucket("cancels")
    await bucket.create("r1", b"x")
    await bucket.delete("r1")
    assert await bucket.get("r1") is None
    assert await bucket.entries() == {}
    await bucket.create("r1", b"y")
    assert await bucket.entries() == {"r1": b"y"}


async def test_a_watcher_is_told_what_is_there_and_what_changes(bus: Bus) -> None:
    bucket = await bus.bucket("cancels")
    await bucket.put("before", b"1")
    told: list[tuple[str, bytes | None]] = []
    subscription = await bucket.watch(lambda key, value: told.append((key, value)))
    await bucket.put("after", b"2")
    await bucket.delete("before")
    await until(lambda: len(told) >= 3)
    assert told == [("before", b"1"), ("after", b"2"), ("before", None)]
    await subscription.close()
    await bucket.put("later", b"3")
    assert len(told) == 3


async def test_an_unknown_bucket_is_an_error_that_lists_the_known(bus: Bus) -> None:
    with pytest.raises(BusError, match="requests"):
        await bus.bucket("request")
