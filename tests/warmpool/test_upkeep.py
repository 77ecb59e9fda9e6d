"""Who hangs is told from who is busy, and who is worn from who is well."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.contracts import Tier
from functions.watch import RunState
from warmpool.member import Member
from warmpool.process import Process
from warmpool.protocol import Reached, to_line
from warmpool.record import FlightRecord
from warmpool.upkeep import Upkeep, UpkeepConfig

MIB = 1 << 20


class Beside:
    """Starts a sleeping child, and plays its part: writes its record and speaks on its channel."""

    record: FlightRecord
    channel: socket.socket

    async def start(self, group: str, channel: int, record: int, log_path: Path) -> Process:
        self.record, self.channel = FlightRecord(os.dup(record)), socket.socket(fileno=os.dup(channel))
        return await asyncio.create_subprocess_exec("sleep", "600")

    async def renew(self) -> None:
        """It starts no other one."""


@asynccontextmanager
async def member(clock_s: float = 0.0) -> AsyncIterator[tuple[Member, Beside]]:
    """A worker that is loaded."""
    beside, changed = Beside(), asyncio.Event()
    one = Member("media-0", "media", Tier.LOADED, lambda: clock_s, changed.set)
    await one.start(beside, Path())
    beside.channel.sendall(to_line(Reached(Tier.LOADED)))
    await changed.wait()
    try:
        yield one, beside
    finally:
        one.kill()
        beside.channel.close()
        await one.ended()
        await one.close()
        beside.record.close()


async def test_a_worker_is_silent_when_its_loop_has_not_turned_for_too_long() -> None:
    async with member() as (one, beside):
        upkeep = Upkeep(UpkeepConfig(silence_s=10))
        beside.record.beat(busy=0, served=0, unique_nbytes=0)
        beat_s = one.vitals.beat_s
        for later_s in range(0, 11, 2):
            assert upkeep.silent([one], beat_s + later_s) == []
        assert upkeep.silent([one], beat_s + 10.5) == [one]


async def test_silence_while_the_pool_itself_slept_does_not_count() -> None:
    async with member() as (one, beside):
        upkeep = Upkeep(UpkeepConfig(silence_s=10))
        beside.record.beat(busy=0, served=0, unique_nbytes=0)
        beat_s = one.vitals.beat_s
        assert upkeep.silent([one], beat_s) == []
        assert upkeep.silent([one], beat_s + 3_600) == []
        assert upkeep.silent([one], beat_s + 3_602) == []


async def test_one_that_is_loading_may_be_silent_for_longer() -> None:
    async with member() as (one, beside):
        one.promote(Tier.HOT)
        upkeep = Upkeep(UpkeepConfig(silence_s=2, start_silence_s=6))
        beside.record.beat(busy=0, served=0, unique_nbytes=0)
        beat_s = one.vitals.beat_s
        assert [bool(upkeep.silent([one], beat_s + later_s)) for later_s in (0, 3, 5, 7)] == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("limits", "age_s", "served", "why"),
    [
        ({"max_age_s": 60}, 61, 0, "older than 60 s"),
        ({"max_age_s": 60}, 59, 0, ""),
        ({"max_age_s": 0}, 1e9, 0, ""),
        ({"max_served": 5, "max_age_s": 0}, 0, 5, "served 5 messages"),
        ({"max_served": 5, "max_age_s": 0}, 0, 4, ""),
    ],
)
async def test_one_that_is_old_or_has_served_enough_is_worn(
    limits: dict[str, float], age_s: float, served: int, why: str
) -> None:
    async with member() as (one, beside):
        beside.record.beat(busy=0, served=served, unique_nbytes=0)
        worn = list(Upkeep(UpkeepConfig(**limits)).worn([one], age_s))  # type: ignore[arg-type]
        assert [why in reason for _, reason in worn] == ([True] if why else [])


async def test_memory_is_a_leak_when_it_grows_after_the_caches_are_full() -> None:
    async with member() as (one, beside):
        upkeep = Upkeep(UpkeepConfig(max_growth_nbytes=100 * MIB))
        for served, used, worn in ((0, 50, 0), (100, 400, 0), (200, 499, 0), (300, 450, 0), (400, 501, 1)):
            beside.record.beat(busy=0, served=served, unique_nbytes=used * MIB)
            assert len(list(upkeep.worn([one], 0.0))) == worn


async def test_a_run_that_does_not_end_wears_its_worker_until_it_does() -> None:
    async with member() as (one, beside):
        slot = beside.record.begin("message")
        for state, worn in ((RunState.RUNNING, 0), (RunState.STUCK, 1)):
            beside.record.change(slot, state)
            assert len(list(Upkeep().worn([one], 0.0))) == worn
        beside.record.end(slot)
        assert list(Upkeep().worn([one], 0.0)) == []
