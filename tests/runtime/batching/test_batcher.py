"""Calls that share runs: answered in their places, alone with their errors, gone when they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from bus.errors import CancelledRequestError, EngineError, InvalidInputError
from runtime.batching.batcher import Batcher


class Squares:
    """Answers numbers with their squares, and remembers the batches; the first one waits until it may go on."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go = Event(), Event()
        if not held:
            self.go.set()

    def __call__(self, values: Sequence[int]) -> list[int]:
        self.batches.append(list(values))
        self.begun.set()
        self.go.wait()
        if -1 in values:
            raise EngineError("a number that has no root")
        return [value * value for value in values]


def items(*values: int) -> list[tuple[str, int]]:
    return [("numbers", value) for value in values]


async def held(squares: Squares, batcher: Batcher[int, int]) -> asyncio.Task[list[int]]:
    """A first call whose run is under way and waits."""
    first = asyncio.create_task(batcher.submit(items(0)))
    await asyncio.to_thread(squares.begun.wait)
    return first


async def test_calls_that_come_while_a_batch_runs_share_the_next_one() -> None:
    squares = Squares(held=True)
    batcher = Batcher(squares, 8)
    first = await held(squares, batcher)
    calls = [asyncio.create_task(batcher.submit(items(n), tenant=str(n))) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    squares.go.set()
    assert [await one for one in (first, *calls)] == [[0], [4], [9], [16]]
    assert squares.batches == [[0], [2, 3, 4]]


async def test_a_call_of_more_items_than_a_batch_takes_is_answered_as_a_whole() -> None:
    squares = Squares()
    assert await Batcher(squares, 4).submit(items(*range(10))) == [n * n for n in range(10)]
    assert [len(batch) for batch in squares.batches] == [4, 4, 2]


async def test_answers_come_back_in_their_places_whatever_bucket_they_ran_in() -> None:
    squares = Squares()
    mixed = [("odd" if n % 2 else "even", n) for n in range(6)]
    assert await Batcher(squares, 8).submit(mixed) == [n * n for n in range(6)]
    assert sorted(map(sorted, squares.batches)) == [[0, 2, 4], [1, 3, 5]]


async def test_an_error_ends_the_calls_of_its_batch_and_no_other() -> None:
    squares = Squares(held=True)
    batcher = Batcher(squares, 2)
    first = await held(squares, batcher)
    calls = [asyncio.create_task(batcher.submit(items(n))) for n in (-1, 3, 4, 5)]
    await asyncio.sleep(0)
    squares.go.set()
    assert await first == [0]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in found[:2]] == [EngineError, EngineError]
    assert found[2:] == [[16], [25]]
    assert await batcher.submit(items(6)) == [36]


async def test_a_call_that_is_given_up_leaves_the_batch() -> None:
    squares = Squares(held=True)
    batcher = Batcher(squares, 8)
    first = await held(squares, batcher)
    given_up, stays = (asyncio.create_task(batcher.submit(items(n))) for n in (2, 3))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    squares.go.set()
    assert await stays == [9]
    await first
    assert squares.batches == [[0], [3]]


async def test_a_request_that_was_cancelled_is_not_run() -> None:
    squares = Squares(held=True)
    batcher = Batcher(squares, 8)
    first = await held(squares, batcher)
    over = False
    cancelled = asyncio.create_task(batcher.submit(items(2), cancelled=lambda: over))
    stays = asyncio.create_task(batcher.submit(items(3)))
    await asyncio.sleep(0)
    over = True
    squares.go.set()
    with pytest.raises(CancelledRequestError):
        await cancelled
    assert (await first, await stays) == ([0], [9])
    assert squares.batches == [[0], [3]]


async def test_a_full_batch_does_not_wait_and_a_single_item_waits_no_longer_than_it_may() -> None:
    squares = Squares()
    batcher = Batcher(squares, 2, max_wait_ms=3_600_000)
    assert await batcher.submit(items(1, 2)) == [1, 4]
    patient = Batcher(squares, 2, max_wait_ms=1)
    assert await patient.submit(items(3)) == [9]
    assert squares.batches == [[1, 2], [3]]


async def test_a_single_item_waits_for_another_one() -> None:
    squares = Squares()
    batcher = Batcher(squares, 2, max_wait_ms=3_600_000)
    first = asyncio.create_task(batcher.submit(items(1)))
    await asyncio.sleep(0)
    assert await batcher.submit(items(2)) == [4]
    assert await first == [1]
    assert squares.batches == [[1, 2]]


async def test_no_items_need_no_run() -> None:
    squares = Squares()
    assert await Batcher(squares, 2).submit([]) == []
    assert squares.batches == []


async def test_a_run_that_answers_too_little_is_an_error() -> None:
    short: Batcher[int, int] = Batcher(lambda values: [0], 2)
    with pytest.raises(EngineError, match="2 items was answered with 1"):
        await short.submit(items(1, 2))


async def test_a_bucket_that_takes_nothing_is_refused() -> None:
    nothing: Batcher[int, int] = Batcher(lambda values: [0], 0)
    with pytest.raises(InvalidInputError):
        await nothing.submit(items(1))


async def test_hundreds_of_calls_of_many_tenants_are_all_answered() -> None:
    squares = Squares()
    batcher = Batcher(squares, 16, runs=2)
    calls = (batcher.submit(items(n, n + 1), tenant=str(n % 7)) for n in range(300))
    assert await asyncio.gather(*calls) == [[n * n, (n + 1) ** 2] for n in range(300)]
    assert sum(map(len, squares.batches)) == 600
    assert max(map(len, squares.batches)) <= 16
