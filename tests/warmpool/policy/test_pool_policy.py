from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bus.contracts import Tier
from functions.warm import WarmSpec
from warmpool.policy.keep_alive import Cost
from warmpool.policy.pool_policy import PoolPolicy
from warmpool.policy.view import GroupView

MB = 1e6
ROOM = 4e9


def view(group: str = "encode", *, alive: int = 0, running: int | None = 0, waiting: int | None = 0, **warm: Any):
    return GroupView(
        group=group,
        warm=WarmSpec().changed(warm),
        cost=Cost(nbytes=200 * MB, start_s=0.1),
        slots=4,
        service_s=0.5,
        alive=alive,
        running=running,
        waiting=waiting,
    )


def workers(policy: PoolPolicy, seen: GroupView, now_s: float, room: float = ROOM) -> int:
    return policy.decide([seen], room, now_s).targets[seen.group].workers


def test_a_cold_group_without_work_has_nobody():
    decision = PoolPolicy().decide([view()], ROOM, 0.0)
    assert decision.targets["encode"].workers == 0
    assert decision.look_again_s == math.inf


def test_a_request_starts_a_worker():
    assert workers(PoolPolicy(), view(waiting=1), 0.0) == 1


def test_the_least_is_there_always_and_the_most_is_never_passed():
    assert workers(PoolPolicy(), view(min=2), 0.0) == 2
    assert workers(PoolPolicy(), view(waiting=500, max=3), 0.0) == 3


def test_a_backlog_has_as_many_as_the_wanted_wait_takes():
    # 50 requests on 4 slots of 0.5 s: in half a second each slot begins two.
    assert workers(PoolPolicy(), view(waiting=50, max=20, target_wait_ms=500), 0.0) == 7
    assert workers(PoolPolicy(), view(waiting=50, max=20, target_wait_ms=0), 0.0) == 13


def test_what_is_not_known_changes_nothing():
    policy = PoolPolicy()
    assert workers(policy, view(alive=3, waiting=None), 0.0) == 3
    assert workers(policy, view(alive=3, running=None), 1000.0) == 3


def test_the_tier_is_what_was_asked_for():
    decision = PoolPolicy().decide([view(min=1, tier="hot")], ROOM, 0.0)
    assert decision.targets["encode"].tier is Tier.HOT


def gone_at(policy: PoolPolicy, seen: GroupView, now_s: float) -> float:
    """When a group without work has nobody any more, for a pool that looks when it is told to."""
    for _ in range(200):
        decision = policy.decide([seen], ROOM, now_s)
        seen = replace(seen, alive=decision.targets[seen.group].workers)
        if not seen.alive:
            return now_s
        now_s = decision.look_again_s
    raise AssertionError("it never goes")


def test_a_worker_without_work_waits_for_its_keep_alive_at_least():
    policy = PoolPolicy()
    asked = {"keep_alive_s": 3000}
    assert workers(policy, view(waiting=1, **asked), 0.0) == 1
    assert workers(policy, view(alive=1, running=1, **asked), 1.0) == 1
    assert 3002 <= gone_at(policy, view(alive=1, **asked), 2.0) < 3020


def test_a_worker_whose_next_request_is_not_expected_goes():
    policy = PoolPolicy()
    assert workers(policy, view(waiting=1), 0.0) == 1
    assert gone_at(policy, view(alive=1), 1.0) < 600


def test_a_busy_function_stays_warm_and_then_goes():
    policy, now_s = PoolPolicy(), 0.0
    for _ in range(40):
        policy.arrived("encode", "image.encode", "interactive", now_s)
        policy.decide([view(waiting=1)], ROOM, now_s)
        policy.decide([view(alive=1, running=1)], ROOM, now_s + 0.1)
        policy.decide([view(alive=1)], ROOM, now_s + 0.6)
        now_s += 20.0
    assert workers(policy, view(alive=1), now_s) == 1
    assert now_s + 20 < gone_at(policy, view(alive=1), now_s) < now_s + 3600


def test_a_stage_that_a_request_will_reach_is_started_in_time_for_it():
    policy = PoolPolicy()
    policy.ahead("encode", 10.0)
    early = policy.decide([view()], ROOM, 0.0)
    assert early.targets["encode"].workers == 0
    assert early.look_again_s == 9.9
    assert workers(policy, view(), 9.9) == 1
    assert workers(policy, view(look_ahead=False), 9.9) == 0
    assert workers(policy, replace(view(), leads=False), 9.9) == 0  # another host makes ready


def test_of_what_all_hosts_need_this_one_has_its_share():
    assert workers(PoolPolicy(), replace(view(waiting=50), share=2), 0.0) == 2
    assert workers(PoolPolicy(), replace(view(waiting=50), share=0), 0.0) == 0


def test_a_host_keeps_to_its_part_of_the_least_and_of_the_most():
    none_here = replace(view(min=2, max=3), least=0, most=1)
    assert workers(PoolPolicy(), none_here, 0.0) == 0
    assert workers(PoolPolicy(), replace(none_here, waiting=50), 0.0) == 1
    assert workers(PoolPolicy(), replace(none_here, waiting=50, most=0), 0.0) == 0
    assert workers(PoolPolicy(), replace(none_here, least=1), 0.0) == 1


def test_a_request_that_did_not_come_is_not_waited_for_long():
    policy = PoolPolicy()
    policy.ahead("encode", 10.0)
    assert workers(policy, view(), 9.9) == 1
    assert workers(policy, view(alive=1), 16.0) == 1  # lingers
    assert workers(policy, view(alive=1), 22.0) == 0


def test_work_takes_the_room_of_who_only_waits():
    policy = PoolPolicy()
    kept = view("kept", alive=1, keep_alive_s=1000)
    policy.decide([replace(kept, running=1)], ROOM, 0.0)
    policy.decide([kept], ROOM, 1.0)
    both = policy.decide([kept, view("busy", waiting=1)], 250 * MB, 2.0)
    assert {group: target.workers for group, target in both.targets.items()} == {"kept": 0, "busy": 1}


def test_a_flood_of_one_tenant_does_not_take_the_room_of_another():
    flood = replace(view("flooded", waiting=400, max=50), tenants={"loud": 400})
    quiet = replace(view("wanted", waiting=1), tenants={"quiet": 1})
    decision = PoolPolicy().decide([flood, quiet], 1e9, 0.0)
    assert decision.targets["wanted"].workers == 1
    assert decision.targets["flooded"].workers == 4


steps = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.floats(0.1, 400)), min_size=1, max_size=30)


@given(steps, st.integers(0, 3), st.integers(3, 8), st.floats(1e9, 4e9))
@settings(deadline=None)
def test_targets_stay_between_the_least_and_the_most_and_within_the_room(
    load: list[tuple[int, int, float]], least: int, most: int, room: float
):
    policy, now_s, alive = PoolPolicy(), 0.0, [0, 0]
    for first, second, seconds in load:
        views = [
            view(name, alive=alive[number], running=0, waiting=waiting, min=least, max=most)
            for number, (name, waiting) in enumerate((("a", first), ("b", second)))
        ]
        decision = policy.decide(views, room, now_s)
        alive = [decision.targets[name].workers for name in "ab"]
        assert decision.look_again_s > now_s
        assert all(count <= most for count in alive)
        assert sum(alive) * 200 * MB <= room or sum(alive) <= 2 * least
        assert room < 2 * least * 200 * MB or all(count >= least for count in alive)
        now_s += seconds


tenants = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 400), min_size=1)


@given(st.lists(tenants, min_size=2, max_size=4), st.integers(1, 12))
@settings(deadline=None)
def test_a_tenant_with_less_than_its_share_of_the_room_has_all_it_needs(asked: list[dict[str, int]], fits: int):
    """Whatever the others flood: groups are all of one tenant's or of several, and workers of one size."""
    views = [
        replace(view(str(number), waiting=sum(whose.values()), max=500, target_wait_ms=0), tenants=whose)
        for number, whose in enumerate(asked)
    ]
    targets = PoolPolicy().decide(views, fits * 200 * MB, 0.0).targets
    assert sum(target.workers for target in targets.values()) <= fits
    everybody = {tenant for whose in asked for tenant in whose}
    for tenant in everybody:
        alone = [number for number, whose in enumerate(asked) if whose.keys() == {tenant}]
        needs = sum(-(-whose.get(tenant, 0) // 4) for whose in asked)
        if needs <= fits // len(everybody):
            for number in alone:
                assert targets[str(number)].workers == -(-asked[number][tenant] // 4)


@given(st.lists(st.integers(0, 8), min_size=2, max_size=60))
@settings(deadline=None)
def test_a_load_that_goes_up_and_down_quickly_starts_nothing_twice(waiting: list[int]):
    """No thrash: within the time that surplus lingers, workers only ever get more."""
    policy, alive = PoolPolicy(), 0
    for number, count in enumerate(waiting):
        target = workers(policy, view(alive=alive, waiting=count, target_wait_ms=0), number * 0.05)
        assert target >= alive
        alive = target
