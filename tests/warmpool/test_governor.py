"""A pool that scales with what is asked of it: from nothing, within its limits, and back to nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus import subjects
from bus.contracts import Capacity, Contract, Event, GroupCapacity, Lane, Tier
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.memory.state import MemoryKeyValue
from bus.ports import Delivery, Settlement
from bus.subjects import START_FUNCTION
from functions.spec import FunctionSpec
from functions.warm import WarmSpec
from tests.warmpool.pools import running, until
from warmpool.governor import Governor
from warmpool.policy.pool_policy import PoolPolicy
from warmpool.policy.view import Decision, GroupView
from warmpool.pool import Pool


class Nothing(Contract):
    """No values."""


async def _unused(context: object, inputs: Nothing) -> Nothing:
    return inputs


def spec(name: str, group: str) -> FunctionSpec:
    return FunctionSpec(name=name, group=group, inputs=Nothing, outputs=Nothing, handler=_unused, slots=3)


def event(function: str, number: int = 0) -> Event:
    request = f"{function.replace('.', '-')}-{number}"
    return Event(request=request, stage="alone", function=function, pipeline="none", created_s=time.time())


def hurried() -> float:
    """A clock on which what a policy waits for comes soon."""
    return 2000 * time.monotonic()


@dataclass
class World:
    pool: Pool
    bus: MemoryBus

    async def ask(self, function: str, times: int = 1, first: int = 0) -> None:
        for number in range(first, first + times):
            asked = event(function, number)
            await self.bus.publish(
                subjects.work(function, Lane.INTERACTIVE), encode(asked), message_id=asked.message_id
            )

    async def answer(self, function: str) -> None:
        """Do what workers would."""

        async def handle(delivery: Delivery, settlement: Settlement) -> None:
            await settlement.ack()

        consumer = await self.bus.serve(function, 3, handle)
        async with asyncio.timeout(20):
            while sum(map(sum, (await self.bus.backlog(function)).values())):
                await asyncio.sleep(0.01)
        await consumer.drain(1.0)

    def tiers(self, group: str) -> list[Tier | None]:
        return [member.tier for member in self.pool.members if member.group == group and not member.leaving]


@asynccontextmanager
async def world(folder: Path, *, room_nbytes: float = 1e12, **settings: WarmSpec) -> AsyncIterator[World]:
    functions = [spec(f"{group}.work", group) for group in settings]
    async with (
        running(folder) as pool,
        MemoryBus() as bus,
        Governor(pool, bus, functions, settings, room_nbytes=room_nbytes, clock=hurried),
    ):
        yield World(pool, bus)


async def test_a_function_that_nobody_asks_has_no_worker_and_one_that_is_asked_gets_it(tmp_path: Path) -> None:
    async with world(tmp_path, one=WarmSpec(), other=WarmSpec()) as here:
        assert not here.pool.members
        await here.ask("one.work")
        await until(lambda: here.tiers("one") == [Tier.LOADED])
        assert not here.tiers("other")
        await here.answer("one.work")
        await until(lambda: not here.pool.members)
        await here.ask("other.work")
        await until(lambda: here.tiers("other") == [Tier.LOADED])


async def test_what_was_asked_before_the_pool_was_there_is_seen(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, MemoryBus() as bus:
        await bus.ensure_function("early.work")
        await bus.publish(subjects.work("early.work", Lane.BATCH), encode(event("early.work")), message_id="early")
        functions, settings = [spec("early.work", "early")], {"early": WarmSpec()}
        async with Governor(pool, bus, functions, settings):
            await until(lambda: [member.tier for member in pool.members] == [Tier.LOADED])


async def test_a_pipeline_that_is_started_where_nobody_is_brings_a_worker_to_start_it(tmp_path: Path) -> None:
    async with world(tmp_path, first=WarmSpec(), second=WarmSpec()) as here:
        await here.ask(START_FUNCTION)
        await until(lambda: len(here.pool.members) == 1 and here.pool.members[0].tier is Tier.LOADED)
        await here.answer(START_FUNCTION)
        await until(lambda: not here.pool.members)
        await here.ask("second.work")
        await until(lambda: here.tiers("second") == [Tier.LOADED])
        await here.ask(START_FUNCTION, first=1)  # whoever is there does it
        await here.answer(START_FUNCTION)
        assert not here.tiers("first")


async def test_a_backlog_gets_as_many_workers_as_it_needs_but_no_more_than_allowed(tmp_path: Path) -> None:
    async with world(tmp_path, busy=WarmSpec(max=3, target_wait_ms=0)) as here:
        await here.ask("busy.work", 4)  # of three slots each
        await until(lambda: here.tiers("busy") == [Tier.LOADED] * 2)
        await here.ask("busy.work", 40, first=4)
        await until(lambda: here.tiers("busy") == [Tier.LOADED] * 3)
        await here.answer("busy.work")
        await until(lambda: not here.tiers("busy"))


async def test_the_least_that_a_deployer_wants_is_there_from_the_start_and_stays(tmp_path: Path) -> None:
    ready, cool = WarmSpec(min=2, tier=Tier.HOT), WarmSpec(min=1, tier=Tier.PRIMED)
    async with world(tmp_path, beats=ready, cool=cool) as here:
        await until(lambda: here.tiers("beats") == [Tier.HOT] * 2 and here.tiers("cool") == [Tier.PRIMED])
        await here.ask("cool.work")
        await until(lambda: here.tiers("cool") == [Tier.LOADED])
        await here.answer("cool.work")
        await until(lambda: here.tiers("cool") == [Tier.PRIMED])
        assert here.tiers("beats") == [Tier.HOT] * 2


async def test_no_worker_is_started_beyond_the_memory_and_the_least_goes_first(tmp_path: Path) -> None:
    async with world(tmp_path, room_nbytes=500e6, first=WarmSpec(min=1), second=WarmSpec(), third=WarmSpec()) as here:
        await until(lambda: here.tiers("first") == [Tier.LOADED])
        await here.ask("second.work")
        await until(lambda: here.tiers("second") == [Tier.LOADED])  # of 200 MB each two fit
        await here.ask("third.work")
        await here.answer("second.work")
        await until(lambda: here.tiers("third") == [Tier.LOADED])
        assert not here.tiers("second")


async def test_a_worker_is_kept_for_as_long_as_a_deployer_wishes(tmp_path: Path) -> None:
    async with world(tmp_path, kept=WarmSpec(keep_alive_s=1e9), let=WarmSpec()) as here:
        for group in ("kept", "let"):
            await here.ask(f"{group}.work")
            await until(lambda: here.tiers(group) == [Tier.LOADED])  # noqa: B023
            await here.answer(f"{group}.work")
        await until(lambda: not here.tiers("let"))
        assert here.tiers("kept") == [Tier.LOADED]


async def test_what_comes_to_workers_is_told_by_function_and_lane(tmp_path: Path) -> None:
    came = Counter[tuple[str, ...]]()

    class Noting(PoolPolicy):
        def arrived(self, group: str, function: str, lane: str, now_s: float, count: int = 1) -> None:
            super().arrived(group, function, lane, now_s, count)
            came[group, function, lane] += count

    functions, settings = [spec("one.work", "one")], {"one": WarmSpec(min=1)}
    async with (
        running(tmp_path) as pool,
        MemoryBus() as bus,
        Governor(pool, bus, functions, settings, policy=Noting()),
    ):
        (worker,) = await pool.reach("one")
        for number, lane in enumerate([Lane.BATCH, Lane.INTERACTIVE, Lane.BATCH]):
            worker.record.begin(str(number), subject=subjects.work("one.work", lane))
        await until(lambda: came.total() == 3)
    assert came == {("one", "one.work", "batch"): 2, ("one", "one.work", "interactive"): 1}


@pytest.mark.parametrize("tier", [Tier.TEMPLATE, Tier.PRIMED])
async def test_colder_workers_wait_colder_and_work_all_the_same(tmp_path: Path, tier: Tier) -> None:
    async with world(tmp_path, cold=WarmSpec(tier=tier, keep_alive_s=1e9)) as here:
        await here.ask("cold.work")
        await until(lambda: here.tiers("cold") == [Tier.LOADED])
        await here.answer("cold.work")
        await until(lambda: here.tiers("cold") == ([Tier.PRIMED] if tier is Tier.PRIMED else []))


class Faulty(PoolPolicy):
    """A policy with a defect that shows once."""

    faults = 1

    def decide(self, groups: Sequence[GroupView], room_nbytes: float, now_s: float) -> Decision:
        if any(view.waiting for view in groups) and self.faults:
            self.faults = 0
            raise ZeroDivisionError("a defect")
        return super().decide(groups, room_nbytes, now_s)


async def test_a_defect_is_told_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        running(tmp_path) as pool,
        MemoryBus() as bus,
        Governor(pool, bus, [spec("one.work", "one")], {"one": WarmSpec()}, policy=Faulty()),
    ):
        await World(pool, bus).ask("one.work")
        await until(lambda: [member.tier for member in pool.members] == [Tier.LOADED])
    assert "ZeroDivisionError: a defect" in caplog.text


async def test_plans_that_are_none_are_not_asked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = MemoryKeyValue.get

    async def counted(self: MemoryKeyValue, key: str) -> tuple[bytes, int] | None:
        asked.append(key)
        return await get(self, key)

    monkeypatch.setattr(MemoryKeyValue, "get", counted)
    async with world(tmp_path, one=WarmSpec()) as here:
        for number in range(5_000):
            headers = {"ce-plan": f"forged{number}", "ce-stages": "any"}
            subject = subjects.work("one.work", Lane.BATCH)
            await here.bus.publish(subject, b"", message_id=str(number), headers=headers)
        await until(lambda: bool(here.tiers("one")))
        await until(lambda: bool(asked))
    assert len(asked) < 500


async def test_what_waits_for_a_host_that_goes_without_a_word_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is found to be gone in between: after a turn that has left the work to it, and before the next is planned.
    monkeypatch.setattr("warmpool.scaler.scaler.LEASE_TTL_S", 0.2)
    monkeypatch.setattr("warmpool.governor._CALM_S", 0.4)
    gone = Capacity(
        host="gone", room_nbytes=1, groups={"one": GroupCapacity(alive=1, running=0)}, renewed_s=time.time()
    )
    async with running(tmp_path) as pool, MemoryBus() as bus:
        await (await bus.bucket("pools")).put("gone", encode(gone))
        await bus.ensure_function("one.work")
        await World(pool, bus).ask("one.work")
        async with Governor(pool, bus, [spec("one.work", "one")], {"one": WarmSpec()}, host="here"):
            await until(lambda: [member.tier for member in pool.members] == [Tier.LOADED])
