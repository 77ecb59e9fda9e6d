"""A pool has as many workers as are wanted, as warm as they are wanted, whatever becomes of them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bus.contracts import Tier
from bus.errors import WorkerStartError
from tests.delivery.processes import alive
from tests.warmpool.pools import facts, running, starter, until
from warmpool.pool import Pool
from warmpool.slot import SlotConfig


async def test_workers_are_started_made_warmer_and_sent_home_as_wanted(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 2, Tier.PRIMED: 1})
        members = await pool.reach("idle")
        assert sorted(member.tier for member in members if member.tier) == [Tier.LOADED, Tier.LOADED, Tier.PRIMED]
        assert all(list(member.timings_s) == ["start", "noop"] for member in members)
        assert all(member.timings_s["noop"] == 0.001 for member in members)
        pids = pool.pids
        pool.want("idle", {Tier.HOT: 1, Tier.LOADED: 1})
        tiers = [member.tier for member in await pool.reach("idle")]
        assert tiers == [Tier.HOT, Tier.LOADED]
        await until(lambda: len(pool.pids) == 2)
        assert set(pool.pids.values()) < set(pids.values())
        pool.want("idle", {})
        await until(lambda: not pool.members)
        assert not any(alive(pid) for pid in pids.values())


async def test_what_is_warm_does_not_become_colder_but_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 1})
        (warm,) = await pool.reach("idle")
        pool.want("idle", {Tier.PRIMED: 1})
        (cold,) = await pool.reach("idle")
        assert (warm.tier, cold.tier) == (Tier.LOADED, Tier.PRIMED)
        await until(lambda: not warm.alive)


async def test_a_worker_that_dies_is_started_again_and_all_are_gone_at_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 2})
        await pool.reach("idle")
        first = pool.pids["idle-0"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: pool.pids.get("idle-0", first) != first)
        await pool.reach("idle")
        pids = list(pool.pids.values())
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in [first, *pids])


@pytest.mark.parametrize("state", ["starting", "primed", "loaded", "hot"])
async def test_a_worker_that_is_killed_in_any_state_is_replaced_by_one_as_warm(tmp_path: Path, state: str) -> None:
    goal = {Tier.LOADED if state == "starting" else Tier(state): 1}
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", goal)
        if state == "starting":
            await until(lambda: "idle-0" in pool.pids)
        else:
            await pool.reach("idle")
        pid = pool.pids["idle-0"]
        os.kill(pid, signal.SIGKILL)
        await until(lambda: pool.pids.get("idle-0", pid) != pid)
        (member,) = await pool.reach("idle")
        assert {member.tier: 1} == goal


async def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("deaf", {Tier.LOADED: 1})
        await pool.reach("deaf")
        (pid,) = pool.pids.values()
    assert not alive(pid)


async def test_a_worker_that_never_starts_fails_the_pool_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with running(tmp_path) as pool:
        pool.want("broken", {Tier.LOADED: 1})
        with pytest.raises(WorkerStartError, match=r"(?s)broken-0 failed 3 times in a row.*no model here"):
            await pool.failed()


async def test_a_stopped_worker_is_killed_for_its_silence_and_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, silence_s=0.5) as pool, asyncio.timeout(60):
        pool.want("beats", {Tier.LOADED: 1})
        (member,) = await pool.reach("beats")
        pid = pool.pids["beats-0"]
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: pool.pids.get("beats-0", pid) != pid)
        assert member.hung
        assert not alive(pid)
        await pool.reach("beats")


async def test_a_worker_that_is_old_goes_when_its_successor_is_warm(tmp_path: Path) -> None:
    async with running(tmp_path, max_age_s=1.0) as pool, asyncio.timeout(60):
        pool.want("beats", {Tier.LOADED: 1})
        (old,) = await pool.reach("beats")
        await until(lambda: old not in pool.members)
        assert "stopped" in (tmp_path / f"{old.slot}.log").read_text()
        successors = [member for member in pool.members if member.tier is Tier.LOADED]
        assert successors
        assert all(member.slot != old.slot for member in successors)


async def test_a_worker_with_a_run_that_does_not_end_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("stuck", {Tier.LOADED: 1})
        (stuck,) = await pool.reach("stuck")
        await until(lambda: not stuck.alive)
        assert "did not end" not in str(stuck.failure)
        assert len(facts(tmp_path, "stuck-1")) >= 1


async def test_all_workers_are_renewed_from_a_new_template_without_a_gap(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 2})
        await pool.reach("idle")
        old, template = set(pool.pids.values()), pool.starter.forker.pid  # type: ignore[attr-defined]
        await pool.renew("the code has changed")
        least = len(pool.pids)
        while old & set(pool.pids.values()):
            await asyncio.sleep(0.002)
            least = min(least, sum(member.alive and member.tier is Tier.LOADED for member in pool.members))
        assert least == 2
        assert len(await pool.reach("idle")) == 2
        assert pool.starter.forker.pid != template  # type: ignore[attr-defined]
        assert not any(alive(pid) for pid in old)


async def test_a_second_renewal_takes_the_place_of_the_first_that_has_not_come_about(tmp_path: Path) -> None:
    async with running(tmp_path) as pool, asyncio.timeout(60):
        pool.want("idle", {Tier.LOADED: 2})
        await pool.reach("idle")
        old = set(pool.pids.values())
        await pool.renew("the code has changed")
        await pool.renew("and again")
        await until(lambda: not old & set(pool.pids.values()))
        assert len(await pool.reach("idle")) == 2
    # Two at first and two in their places: nobody was started to be stopped at once.
    assert sum(len(facts(tmp_path, f"idle-{number}")) for number in range(8)) == 4


async def test_where_there_is_no_room_for_both_the_old_worker_leaves_first(tmp_path: Path) -> None:
    async with running(tmp_path, variables={"NOOP_ROOM": str(tmp_path / "room")}) as pool, asyncio.timeout(60):
        pool.want("large", {Tier.LOADED: 1})
        (old,) = await pool.reach("large")
        pool.replace("large-0", "it is old")
        await until(lambda: not old.alive)
        (new,) = await pool.reach("large")
        assert (new.slot, new.tier) == ("large-0", Tier.LOADED)
        assert "no room" in (tmp_path / "large-1.log").read_text()


async def test_a_pool_is_closed_at_once_while_there_is_no_template(tmp_path: Path) -> None:
    async with asyncio.timeout(60), starter(tmp_path) as starting:
        pool = Pool(starting, SlotConfig(logs=tmp_path, grace_s=1.0))
        async with pool:
            pool.want("idle", {Tier.LOADED: 3})
            await asyncio.sleep(0)
            assert len(pool.members) == 3
            assert pool.pids == {}
        assert not pool.members
