"""What a governor knows of a group: from what it hears, from the bus, and from its workers' records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bus import subjects
from bus.contracts import Lane, Tier
from functions.warm import WarmSpec
from tests.warmpool.test_governor import spec
from warmpool.group import Group
from warmpool.member import Member

SUBJECT = subjects.work("encode.work", Lane.BATCH)


def group(*functions: str) -> Group:
    return Group(name="encode", settings=WarmSpec(), functions=[spec(name, "encode") for name in functions])


@pytest.fixture
def worker() -> Iterator[Member]:
    """One that serves, as far as its record tells."""
    member = Member("encode-0", "encode", Tier.LOADED)
    member.tier = Tier.LOADED
    yield member
    member.record.close()


def test_what_was_heard_waits_before_the_bus_is_asked() -> None:
    one = group("encode.work")
    one.hear("encode.work", "a")
    one.hear("encode.work", "b")
    assert not one.to_ask(["encode.work"], 1.0)
    assert one.view().waiting == 2
    assert one.to_ask(["encode.work"], 1.0) == ["encode.work"]  # after a while it is looked whether it still does
    one.tell({})
    assert one.view().waiting == 0
    assert not one.to_ask(["encode.work"], 1.0)


def test_a_message_that_the_stream_does_not_have_yet_is_not_forgotten() -> None:
    one = group("encode.work", "encode.other")
    one.asked = True
    one.hear("encode.work", "a")
    assert one.to_ask(["encode.work", "encode.other"], 1.0) == ["encode.work", "encode.other"]
    one.hear("encode.other", "a")  # while the bus answers
    one.tell({})
    assert one.requests == {"encode.work": 1, "encode.other": 1}


def test_what_is_heard_without_a_pause_is_compared_with_the_bus_now_and_then() -> None:
    one, asked = group("encode.work"), []
    for number in range(11):
        one.hear("encode.work", "a")
        asked.append(bool(one.to_ask(["encode.work"], 100.0 + number / 10)))
    # Not at once, for somebody waits, and then a quarter of a second after each time.
    assert asked == [False, False, False, True, False, False, False, True, False, False, False]
    assert one.requests == {"encode.work": 11}
    one.tell({"encode.work": 2})
    assert one.requests == {"encode.work": 2}


def test_whose_requests_wait_is_heard_while_there_is_no_worker() -> None:
    one = group("encode.work")
    for tenant in ("first", *["loud"] * 5, "quiet"):
        one.hear("encode.work", tenant)
    assert one.view().tenants == {"first": 1, "loud": 5, "quiet": 1}
    assert not one.to_ask(["encode.work"], 1.0)
    one.tell({"encode.work": 2})  # the oldest were taken, elsewhere
    assert one.view().tenants == {"loud": 1, "quiet": 1}


def test_whose_requests_run_is_in_the_records_of_the_workers(worker: Member) -> None:
    one = group("encode.work")
    one.look_at([worker], 0.0)
    assert one.view().tenants == {}
    slot = worker.record.begin("1", subject=SUBJECT, tenant="loud")
    worker.record.begin("2", subject=SUBJECT, tenant="loud")
    worker.record.begin("3", subject=SUBJECT, tenant="quiet")
    worker.record.beat(busy=3, served=0, unique_nbytes=0)
    one.look_at([worker], 1.0)
    assert one.view().tenants == {"loud": 2, "quiet": 1}
    worker.record.end(slot)
    one.look_at([worker], 2.0)
    assert one.view().tenants == {"loud": 1, "quiet": 1}
    one.look_at([], 3.0)
    assert one.view().tenants == {}


def test_arrivals_are_told_once_with_the_subject_that_they_came_on(worker: Member) -> None:
    one, other = group("encode.work"), subjects.work("encode.other", Lane.INTERACTIVE)
    for number in range(3):
        worker.record.end(worker.record.begin(str(number), subject=SUBJECT))
    assert one.look_at([worker], 0.0).came == {SUBJECT: 3}
    worker.record.begin("4", subject=other)
    assert one.look_at([worker], 1.0).came == {other: 1}
    assert one.look_at([worker], 2.0).came == {}


def test_a_worker_in_the_place_of_another_is_counted_from_its_start(worker: Member) -> None:
    one, successor = group("encode.work"), Member("encode-0", "encode", Tier.LOADED)
    successor.tier = Tier.LOADED
    for number in range(3):
        worker.record.begin(str(number), subject=SUBJECT)
    worker.record.beat(busy=0, served=3, unique_nbytes=0)
    assert one.look_at([worker], 0.0).served == 3
    successor.record.begin("4", subject=SUBJECT)
    successor.record.beat(busy=0, served=1, unique_nbytes=0)
    assert one.look_at([successor], 1.0) == (1, {SUBJECT: 1})
    successor.record.close()
    assert one.look_at([successor], 2.0) == (0, {})  # it has ended
