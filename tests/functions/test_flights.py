"""What several want at the same moment is made by one of them."""

from __future__ import annotations

import asyncio

from functions.flights import Flights


async def test_the_first_one_makes_it_and_all_who_wait_get_it() -> None:
    flights: Flights[int] = Flights()
    assert flights.take_off(["a", "b"]) == ["a", "b"]
    assert flights.take_off(["b", "c"]) == ["c"]
    waiting = [asyncio.create_task(flights.landed("a", 30)) for _ in range(3)]
    await asyncio.sleep(0)
    flights.land(["a", "b"], {"a": 1, "b": 2})
    assert await asyncio.gather(*waiting) == [1, 1, 1]
    assert await flights.landed("a", 30) is None  # nobody keeps it here
    assert flights.take_off(["a", "b", "c"]) == ["a", "b"]


async def test_who_waits_for_what_was_not_made_makes_it() -> None:
    flights: Flights[int] = Flights()
    flights.take_off(["a"])
    waiting = asyncio.create_task(flights.landed("a", 30))
    await asyncio.sleep(0)
    flights.land(["a"], {})
    assert await waiting is None
    assert flights.take_off(["a"]) == ["a"]


async def test_who_looks_up_from_waiting_disturbs_nobody() -> None:
    flights: Flights[int] = Flights()
    flights.take_off(["a"])
    assert await flights.landed("a", 0.0) is None
    waiting = asyncio.create_task(flights.landed("a", 30))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    other = asyncio.create_task(flights.landed("a", 30))
    await asyncio.sleep(0)
    flights.land(["a"], {"a": 7})
    assert await other == 7
