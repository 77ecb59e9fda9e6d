"""Two hosts on one bus: pools of no-op workers, each with a governor of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bus.contracts import Capacity, GroupCapacity, Tier
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.subjects import START_FUNCTION
from functions.warm import WarmSpec
from tests.warmpool.pools import running, until
from tests.warmpool.test_governor import World, hurried, spec
from warmpool.governor import Governor


@dataclass
class Hosts:
    bus: MemoryBus
    worlds: dict[str, World] = field(default_factory=dict)
    closing: dict[str, AsyncExitStack] = field(default_factory=dict)

    def counts(self, group: str = "work") -> dict[str, int]:
        return {name: world.tiers(group).count(Tier.LOADED) for name, world in sorted(self.worlds.items())}

    async def leave(self, name: str) -> None:
        self.worlds.pop(name)
        await self.closing.pop(name).aclose()


@asynccontextmanager
async def hosts(folder: Path, warm: WarmSpec, *names: str) -> AsyncIterator[Hosts]:
    async with MemoryBus() as bus, AsyncExitStack() as every:
        found = Hosts(bus)
        for name in names:
            (folder / name).mkdir()
            stack = await every.enter_async_context(AsyncExitStack())
            pool = await stack.enter_async_context(running(folder / name))
            functions = [spec("work.work", "work"), spec(f"{name}.work", name)]
            settings = {"work": warm, name: WarmSpec()}  # the second group is this host's alone
            await stack.enter_async_context(
                Governor(pool, bus, functions, settings, host=name, room_nbytes=4e9, clock=hurried)
            )
            found.worlds[name], found.closing[name] = World(pool, bus), stack
        yield found


async def test_one_request_starts_one_worker_and_not_one_on_every_host(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(target_wait_ms=0), "a", "b") as both:
        await both.worlds["a"].ask("work.work")
        await until(lambda: both.counts() == {"a": 1, "b": 0})
        await both.worlds["b"].ask("b.work")
        await until(lambda: both.counts("b")["b"] == 1)  # so the other host has looked at everything since
        assert both.counts() == {"a": 1, "b": 0}


async def test_a_backlog_is_shared_and_all_goes_back_to_nothing(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(target_wait_ms=0), "a", "b") as both:
        await both.worlds["a"].ask("work.work", 12)  # of three slots each
        await until(lambda: both.counts() == {"a": 2, "b": 2})
        await both.worlds["a"].answer("work.work")
        await until(lambda: both.counts() == {"a": 0, "b": 0})
        await both.worlds["b"].ask("work.work", 1, first=50)
        await until(lambda: sum(both.counts().values()) == 1)


async def test_the_work_of_a_host_that_leaves_is_taken_over(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(target_wait_ms=0), "a", "b") as both:
        await both.worlds["a"].ask("work.work", 3)
        await until(lambda: both.counts() == {"a": 1, "b": 0})
        await both.leave("a")
        await until(lambda: both.counts() == {"b": 1})


async def test_a_pipeline_is_started_by_whoever_is_there_on_whichever_host(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(), "x", "y") as both:
        await both.worlds["x"].ask("x.work")  # of a group that only this host has
        await until(lambda: both.counts("x")["x"] == 1)
        for number in range(2):
            await both.worlds["y"].ask("y.work", first=number)
            await until(lambda: both.counts("y")["y"] == 1)  # so this host has heard of the other's worker since
            await both.worlds["y"].answer("y.work")
            await until(lambda: both.counts("y")["y"] == 0)
            await both.worlds["y"].ask(START_FUNCTION, first=number)
        await both.worlds["y"].ask("y.work", first=2)
        await until(lambda: both.counts("y")["y"] == 1)
        assert both.counts() == {"x": 0, "y": 0}  # of the group that starts pipelines where nobody is


async def test_the_most_is_of_all_hosts_together(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(max=3, target_wait_ms=0), "a", "b") as both:
        await both.worlds["a"].ask("work.work", 60)  # of three slots each
        await until(lambda: sum(both.counts().values()) == 3)
        await both.worlds["b"].ask("b.work")
        await until(lambda: both.counts("b")["b"] == 1)  # so the other host has looked at everything since
        assert sum(both.counts().values()) == 3


async def test_the_least_is_of_all_hosts_together_and_outlives_the_host_that_has_it(tmp_path: Path) -> None:
    async with hosts(tmp_path, WarmSpec(min=1), "a", "b") as both:
        await until(lambda: both.counts() == {"a": 1, "b": 0})
        await both.worlds["b"].ask("b.work")
        await until(lambda: both.counts("b")["b"] == 1)
        assert both.counts() == {"a": 1, "b": 0}
        await both.leave("a")
        await until(lambda: both.counts() == {"b": 1})


@pytest.mark.parametrize("tier", Tier)
async def test_a_host_that_has_heard_of_nothing_itself_takes_its_part(tmp_path: Path, tier: Tier) -> None:
    async with hosts(tmp_path, WarmSpec(tier=tier, target_wait_ms=0), "a") as one:
        busy = GroupCapacity(alive=1, running=3, requests=6, slots=3, most=4, nbytes=200_000_000, service_s=0.5)
        told = Capacity(host="full", room_nbytes=200_000_000, groups={"work": busy}, renewed_s=1.0)
        await (await one.bus.bucket("pools")).put("full", encode(told))
        await until(lambda: one.worlds["a"].tiers("work") == [Tier.HOT if tier is Tier.HOT else Tier.LOADED])
