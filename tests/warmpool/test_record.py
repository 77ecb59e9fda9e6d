"""What a worker did can be read by its pool, also when it is dead."""

from __future__ import annotations

import os
import signal

import pytest

from functions.watch import RunState
from warmpool.record import FlightRecord, Vitals


def test_what_one_process_writes_the_other_one_reads_after_its_death() -> None:
    record, descriptor = FlightRecord.create()
    child = os.fork()
    if child == 0:
        theirs = FlightRecord(descriptor)
        done, running = theirs.begin("done"), theirs.begin("running")
        theirs.begin("waiting")
        theirs.change(running, RunState.RUNNING)
        theirs.end(done)
        theirs.beat(busy=2, served=1, unique_nbytes=12_345)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(descriptor)
    os.waitpid(child, 0)
    assert dict(record.runs()) == {"running": RunState.RUNNING, "waiting": RunState.WAITING}
    vitals = record.vitals
    assert (vitals.busy, vitals.served, vitals.unique_nbytes) == (2, 1, 12_345)
    assert vitals.beat_s == vitals.active_s > 0
    record.close()
    assert record.closed


def test_a_worker_that_does_nothing_lives_and_is_not_active() -> None:
    record, descriptor = FlightRecord.create()
    os.close(descriptor)
    assert record.vitals == Vitals()
    record.beat(busy=1, served=4, unique_nbytes=0)
    active_s = record.vitals.active_s
    record.beat(busy=0, served=5, unique_nbytes=0)
    assert record.vitals.active_s > active_s
    active_s = record.vitals.active_s
    record.beat(busy=0, served=5, unique_nbytes=0)
    assert record.vitals.active_s == active_s
    assert record.vitals.beat_s > active_s
    record.close()


def test_more_messages_than_a_record_has_room_for_are_served_without_being_noted() -> None:
    record, descriptor = FlightRecord.create()
    os.close(descriptor)
    slots = [record.begin(str(number)) for number in range(2_000)]
    assert len(list(record.runs())) == len([slot for slot in slots if slot]) == 1_023
    for slot in slots:
        record.change(slot, RunState.RUNNING)
        record.end(slot)
    assert list(record.runs()) == []
    assert record.begin("again") > 0
    record.close()


def test_a_key_that_is_too_long_is_cut_to_what_is_there() -> None:
    record, descriptor = FlightRecord.create()
    os.close(descriptor)
    with pytest.raises(UnicodeEncodeError):
        record.begin("é")
    record.begin("x" * 100)
    assert [key for key, _ in record.runs()] == ["x" * 62]
    record.close()


def test_what_came_is_counted_by_its_subject_and_told_apart_by_its_tenant() -> None:
    record, descriptor = FlightRecord.create()
    theirs = FlightRecord(descriptor)
    first = theirs.begin("1", subject="fn.encode.batch", tenant="loud")
    theirs.begin("2", subject="fn.encode.batch", tenant="loud")
    theirs.begin("3", subject="fn.generate.interactive", tenant="quiet")
    theirs.begin("3")  # again
    assert record.tenants() == {"loud": 2, "quiet": 1, "": 1}
    assert record.arrivals() == {"fn.encode.batch": 2, "fn.generate.interactive": 1}
    theirs.end(first)
    assert record.tenants() == {"loud": 1, "quiet": 1, "": 1}
    assert record.arrivals() == {"fn.encode.batch": 2, "fn.generate.interactive": 1}
    record.close()
    theirs.close()


def test_more_subjects_than_a_record_has_room_for_are_served_without_being_counted() -> None:
    record, descriptor = FlightRecord.create()
    os.close(descriptor)
    for number in range(300):
        record.begin(str(number), subject=f"fn.{number}.batch")
    assert record.arrivals() == {f"fn.{number}.batch": 1 for number in range(256)}
    record.close()
