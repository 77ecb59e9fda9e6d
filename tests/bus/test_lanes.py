from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Lane
from bus.lanes import LanePolicy


def test_an_idle_function_holds_one_pull_for_each_lane_and_keeps_the_rest():
    policy = LanePolicy(8)
    assert policy.share() == {Lane.INTERACTIVE: 1, Lane.STANDARD: 1, Lane.BATCH: 1}
    assert policy.free == 5
    assert policy.share() == {}


def test_a_lane_with_a_backlog_gets_the_slots_that_are_free():
    policy = LanePolicy(8)
    policy.share()
    assert policy.arrived(Lane.BATCH, waiting=100)
    assert policy.share() == {Lane.BATCH: 5}


def test_a_backlog_of_batch_work_leaves_the_interactive_lane_its_pull():
    policy = LanePolicy(4)
    policy.share()
    for _ in range(2):
        assert policy.arrived(Lane.BATCH, waiting=100)
        policy.share()
    assert policy.lanes[Lane.INTERACTIVE].pulled == 1
    assert policy.arrived(Lane.INTERACTIVE, waiting=0)


def test_a_function_is_full_when_one_of_its_lanes_has_no_slot_left():
    policy = LanePolicy(4)
    assert not policy.full
    for full in (False, True):
        policy.share()
        assert not policy.full
        assert policy.arrived(Lane.BATCH, waiting=1)
        policy.share()
        assert policy.full is full
    policy.settled()
    policy.share()
    assert not policy.full


def test_slots_that_become_free_are_shared_by_weight():
    policy = LanePolicy(12)
    policy.share()
    for lane in Lane:
        assert policy.arrived(lane, waiting=1000)
    served = dict.fromkeys(Lane, 0)
    for _ in range(1200):
        for lane, count in policy.share().items():
            for _ in range(count):
                assert policy.arrived(lane, waiting=1000)
                served[lane] += 1
        while policy.busy > 3:
            policy.settled()
    total = sum(served.values())
    assert served[Lane.INTERACTIVE] / total == pytest.approx(8 / 12, abs=0.12)
    assert served[Lane.BATCH] / total > 0.05


def test_a_message_for_a_pull_that_was_given_up_is_refused_when_no_slot_is_left():
    policy = LanePolicy(3)
    policy.share()
    policy.reset(Lane.BATCH)
    policy.share()
    assert policy.arrived(Lane.BATCH, waiting=0)
    assert not policy.arrived(Lane.BATCH, waiting=0)


def test_fewer_slots_than_lanes_are_refused():
    with pytest.raises(ValueError, match="at least one each"):
        LanePolicy(2)


def test_a_message_for_a_lost_pull_takes_a_free_slot_and_not_one_of_a_pull_that_waits():
    policy = LanePolicy(4, lanes=[Lane.BATCH])
    assert policy.share() == {Lane.BATCH: 1}
    assert policy.arrived(Lane.BATCH, waiting=0, pulled=False)
    assert (policy.busy, policy.lanes[Lane.BATCH].pulled, policy.free) == (1, 1, 2)


def test_pulls_that_never_left_are_shared_out_again():
    policy = LanePolicy(3)
    first = policy.share()
    policy.unsent(Lane.INTERACTIVE, first[Lane.INTERACTIVE])
    assert policy.share() == {Lane.INTERACTIVE: 1}


_ACTIONS = ["arrive", "late", "unsent", "settle", "expire", "reset"]


@given(
    slots=st.integers(3, 20),
    steps=st.lists(st.tuples(st.sampled_from(_ACTIONS), st.sampled_from(list(Lane)), st.integers(0, 50)), max_size=200),
)
def test_messages_and_pulls_never_exceed_the_slots(slots: int, steps: list[tuple[str, Lane, int]]):
    policy = LanePolicy(slots)
    for action, lane, number in steps:
        policy.share()
        if action == "arrive":
            policy.arrived(lane, waiting=number)
        elif action == "late":
            policy.arrived(lane, waiting=number, pulled=False)
        elif action == "unsent":
            policy.unsent(lane, number)
        elif action == "settle" and policy.busy:
            policy.settled()
        elif action == "expire":
            policy.expired(lane, number)
        elif action == "reset":
            policy.reset(lane)
        assert policy.busy + sum(state.pulled for state in policy.lanes.values()) <= slots
        assert policy.free >= 0
