from __future__ import annotations

from functions.warm import WarmSpec
from tests.warmpool.policy.test_look_ahead import CHAT, SECONDS
from warmpool.ahead import Ahead
from warmpool.policy.keep_alive import Cost
from warmpool.policy.pool_policy import PoolPolicy
from warmpool.policy.view import GroupView

GROUPS = {"media.fetch": "media", "generate": "generate", "speak": "speech"}


def wanted(policy: PoolPolicy, group: str, now_s: float) -> int:
    seen = GroupView(
        group=group,
        warm=WarmSpec(),
        cost=Cost(nbytes=1e8, start_s=0.5),
        slots=4,
        service_s=0.5,
        alive=0,
        running=0,
        waiting=0,
    )
    return policy.decide([seen], 1e9, now_s).targets[group].workers


def test_each_group_is_ready_when_the_request_gets_there():
    policy = PoolPolicy()
    Ahead(policy, GROUPS).start(CHAT, SECONDS, 100.0)
    # It starts in half a second, and is due after 0.6 and 2.6.
    assert [wanted(policy, "generate", now_s) for now_s in (100.0, 100.1)] == [0, 1]
    assert [wanted(policy, "speech", now_s) for now_s in (102.0, 102.1)] == [0, 1]


def test_a_group_that_no_request_gets_to_is_not_started_for_ever():
    policy, now_s = PoolPolicy(), 0.0
    ahead, started = Ahead(policy, GROUPS), []
    for _ in range(12):
        ahead.start(CHAT, SECONDS, now_s)
        started.append(wanted(policy, "speech", now_s + 2.6))
        ahead.look("speech", now_s + 40.0, works=False)
        now_s += 100.0
    assert started[0] == 1
    assert started[-1] == 0
    assert sum(started) < 10


def test_a_group_that_requests_get_to_is_started_for_each():
    policy, now_s = PoolPolicy(), 0.0
    ahead = Ahead(policy, GROUPS)
    for _ in range(12):
        ahead.start(CHAT, SECONDS, now_s)
        assert wanted(policy, "speech", now_s + 2.6) == 1
        ahead.look("speech", now_s + 3.0, works=True)
        now_s += 100.0


def test_a_group_that_has_work_only_later_was_needed_all_the_same():
    policy = PoolPolicy()
    ahead = Ahead(policy, GROUPS)
    for now_s in range(0, 1200, 100):
        ahead.start(CHAT, SECONDS, now_s)
        ahead.look("speech", now_s + 1.0, works=False)  # it is not its time yet
        ahead.look("speech", now_s + 20.0, works=True)
    ahead.start(CHAT, SECONDS, 5000.0)
    assert wanted(policy, "speech", 5002.6) == 1


def test_a_group_that_requests_get_to_again_is_started_again():
    policy, now_s = PoolPolicy(), 0.0
    ahead, started = Ahead(policy, GROUPS), []
    for reached in [False] * 20 + [True] * 3:
        ahead.start(CHAT, SECONDS, now_s)
        started.append(wanted(policy, "speech", now_s + 2.6))
        ahead.look("speech", now_s + (3.0 if reached else 40.0), works=reached)
        now_s += 100.0
    ahead.start(CHAT, SECONDS, now_s)
    assert started[19:21] == [0, 0]
    assert wanted(policy, "speech", now_s + 2.6) == 1
