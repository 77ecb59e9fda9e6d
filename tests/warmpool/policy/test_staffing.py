from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpool.policy.staffing import Rate, for_backlog, for_rate


@pytest.mark.parametrize(
    ("requests", "slots", "service_s", "target_s", "workers"),
    [
        (0, 4, 1.0, 1.0, 0),
        (1, 4, 1.0, 1.0, 1),
        (50, 1, 1.0, 0.0, 50),  # nobody waits
        (50, 4, 1.0, 0.0, 13),
        (50, 1, 1.0, 4.0, 10),  # each runs five until the last has begun
        (50, 4, 0.1, 10.0, 1),
    ],
)
def test_a_backlog_has_as_many_workers_as_it_takes(
    requests: int, slots: int, service_s: float, target_s: float, workers: int
):
    assert for_backlog(requests, slots, service_s, target_s) == workers


@given(st.integers(1, 500), st.integers(1, 16), st.floats(0.01, 100), st.floats(0, 100))
def test_nobody_of_a_backlog_waits_longer_than_wanted(requests: int, slots: int, service_s: float, target_s: float):
    workers = for_backlog(requests, slots, service_s, target_s)
    rounds = math.ceil(requests / (workers * slots)) - 1  # full rounds before the last one begins
    assert rounds * service_s <= target_s + 1e-6 or rounds == math.ceil(target_s / service_s)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 8), st.floats(0.01, 10), st.floats(0, 10))
def test_more_requests_never_need_fewer_workers(requests: int, more: int, slots: int, service_s: float, wait_s: float):
    assert for_backlog(requests + more, slots, service_s, wait_s) >= for_backlog(requests, slots, service_s, wait_s)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_one_server_is_enough_exactly_while_its_mean_wait_is_short_enough(load: float):
    wait_s = load / (1 - load)  # of the M/M/1 queue, for a service time of 1
    assert for_rate(load, 1, 1.0, wait_s * 1.001) == 1
    assert for_rate(load, 1, 1.0, wait_s * 0.999) == 2


def test_two_servers_wait_as_their_closed_form_says():
    load = 1.5
    wait_s = (load / 2) ** 2 / (1 - (load / 2) ** 2)  # of the M/M/2 queue, for a service time of 1
    assert for_rate(load, 1, 1.0, wait_s * 1.001) == 2
    assert for_rate(load, 1, 1.0, wait_s * 0.999) == 3


def test_slots_are_servers():
    assert for_rate(10.0, 4, 1.0, 0.1) == math.ceil(for_rate(10.0, 1, 1.0, 0.1) / 4)


def test_what_does_not_come_needs_nobody():
    assert for_rate(0.0, 4, 1.0, 0.1) == 0


def test_a_rate_is_what_came_lately_and_fades():
    rate = Rate(over_s=60)
    for second in range(600):
        rate.add(float(second), 2)
    assert rate.at(599) == pytest.approx(2.0, rel=0.05)
    assert rate.at(599 + 60) == pytest.approx(rate.at(599) / math.e)
    assert Rate().at(5.0) == 0.0
