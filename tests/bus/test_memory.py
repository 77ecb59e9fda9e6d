"""What only the in-memory bus can show, because its clock and its receivers are in this process."""

from __future__ import annotations

import asyncio
import time

import pytest

from bus.contracts import Lane
from bus.errors import BusUnavailableError
from bus.memory import MemoryBus
from bus.ports import Delivery, Settlement
from bus.subjects import work


async def test_an_ack_that_comes_after_the_ack_wait_still_counts() -> None:
    async with MemoryBus(ack_wait_s=0.01) as bus:
        await bus.ensure_function("f")
        forgotten: asyncio.Queue[Settlement] = asyncio.Queue()

        async def forget(_: Delivery, settlement: Settlement) -> None:
            forgotten.put_nowait(settlement)

        consumer = await bus.serve("f", 4, forget)
        await bus.publish(work("f", Lane.BATCH), b"x", message_id="1")
        late = await forgotten.get()
        await consumer.stop_pulling()
        async with asyncio.timeout(10):
            while (await bus.backlog("f"))[Lane.BATCH] != (1, 0):
                await asyncio.sleep(0.001)
        await late.ack()
        assert (await bus.backlog("f"))[Lane.BATCH] == (0, 0)


async def test_entries_vanish_after_their_time_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryBus() as bus:
        workers, plans = await bus.bucket("workers"), await bus.bucket("plans")
        await workers.put("w1", b"lease")
        await plans.put("p1", b"plan")
        later = time.time() + 11
        monkeypatch.setattr(time, "time", lambda: later)
        assert await workers.get("w1") is None
        assert await workers.entries() == {}
        await workers.create("w1", b"again")
        assert await plans.entries() == {"p1": b"plan"}


async def test_logs_forget_what_is_older_than_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryBus() as bus:
        await bus.broadcast("token.r1", b"x")
        later = time.time() + 601
        monkeypatch.setattr(time, "time", lambda: later)
        assert await bus.history("token.r1") == []


async def test_a_message_id_is_forgotten_after_two_minutes_as_at_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryBus() as bus:
        assert await bus.publish("trace.r1", b"x", message_id="1")
        later = time.time() + 121
        monkeypatch.setattr(time, "time", lambda: later)
        assert await bus.publish("trace.r1", b"x", message_id="1")


async def test_work_for_a_function_that_does_not_exist_is_not_swallowed() -> None:
    async with MemoryBus() as bus:
        with pytest.raises(BusUnavailableError, match="ensure_function"):
            await bus.publish(work("nobody", Lane.BATCH), b"x", message_id="1")
