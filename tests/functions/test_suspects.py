"""What is kept of messages that had workers which ended, and what follows from it."""

from __future__ import annotations

import asyncio
from threading import Event as ThreadEvent
from typing import Any

import pytest

from bus.contracts import Contract, Event, Suspicion
from bus.errors import DeliveryExhaustedError
from bus.memory import MemoryBus
from functions import Context
from functions.environment import FunctionEnvironment
from functions.guard import Guard
from functions.registry import Registry
from functions.spec import FunctionSpec
from functions.suspects import Suspects, message_key
from functions.watch import RunState

EVENT = Event(request="r", stage="s", function="f", pipeline="p", created_s=0.0, inputs={})
KEY = message_key(EVENT)


@pytest.fixture
async def suspects() -> Suspects:
    return Suspects(await MemoryBus().bucket("suspects"))


async def test_a_message_that_is_not_known_is_not_suspected(suspects: Suspects) -> None:
    assert await suspects.find(KEY) == Suspicion()


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(True, True)], (1, 1)),
        ([(True, False)], (1, 0)),
        ([(True, False)] * 2, (2, 0)),
        ([(True, False)] * 3, (3, 1)),
        ([(True, False)] * 4, (4, 2)),
        ([(False, True)] * 9, (9, 0)),
        ([(False, False), (True, False), (True, False)], (3, 1)),
    ],
)
async def test_crashes_count_at_once_and_kills_from_outside_from_the_third_on(
    suspects: Suspects, ends: list[tuple[bool, bool]], expected: tuple[int, int]
) -> None:
    for running, crashed in ends:
        await suspects.note(KEY, running=running, crashed=crashed)
    known = await suspects.find(KEY)
    assert (known.interruptions, known.crashes) == expected


async def test_two_pools_that_lose_a_worker_over_it_at_the_same_time_both_count(suspects: Suspects) -> None:
    await asyncio.gather(*(suspects.note(KEY, running=True, crashed=True) for _ in range(5)))
    assert await suspects.find(KEY) == Suspicion(interruptions=5, crashes=5)


class Noted:
    """A watch that remembers the state of every slot."""

    def __init__(self) -> None:
        self.states: dict[int, RunState] = {}
        self.came: list[tuple[str, str]] = []

    def begin(self, key: str, state: RunState = RunState.WAITING, *, subject: str = "", tenant: str = "") -> int:
        self.states[len(self.states) + 1] = state
        self.came.append((subject, tenant))
        return len(self.states)

    def change(self, slot: int, state: RunState) -> None:
        self.states[slot] = state

    def end(self, slot: int) -> None:
        self.states[slot] = RunState.NONE


async def test_a_delivery_is_waiting_then_running_then_gone_from_the_record(suspects: Suspects) -> None:
    watch = Noted()
    guard = Guard(watch, suspects)
    case = guard.open(EVENT.model_copy(update={"tenant": "a b"}), 1, "fn.f.batch")
    assert watch.came == [("fn.f.batch", "a%20b")]
    assert watch.states == {1: RunState.WAITING}
    async with guard.running(case):
        assert watch.states == {1: RunState.RUNNING}
    assert watch.states == {1: RunState.WAITING}
    guard.close(case)
    assert watch.states == {1: RunState.NONE}


async def test_a_delivery_that_comes_again_is_no_further_arrival(suspects: Suspects) -> None:
    watch = Noted()
    Guard(watch, suspects).open(EVENT, 2, "fn.f.batch")
    assert watch.came == [("", "default")]


async def test_ends_of_workers_are_no_tries_of_the_message(suspects: Suspects) -> None:
    guard = Guard(None, suspects)
    for _ in range(7):
        await suspects.note(KEY, running=False, crashed=True)
    case = guard.open(EVENT, 9)
    await guard.examine(case, "f")
    assert case.tries == 2


async def test_a_message_that_ended_two_workers_is_refused(suspects: Suspects) -> None:
    guard = Guard(None, suspects)
    for _ in range(2):
        await suspects.note(KEY, running=True, crashed=True)
    with pytest.raises(DeliveryExhaustedError, match="2 workers crashed or hung"):
        await guard.examine(guard.open(EVENT, 3), "f")


async def test_a_suspect_runs_alone(suspects: Suspects) -> None:
    guard = Guard(None, suspects)
    other = guard.open(EVENT.model_copy(update={"request": "other"}), 1)
    await suspects.note(KEY, running=True, crashed=True)
    suspect = guard.open(EVENT, 2)
    await guard.examine(suspect, "f")
    order: list[str] = []

    async def run(name: str, case: Any) -> None:
        async with guard.running(case):
            order.append(name)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(name)

    async with asyncio.timeout(5):
        await asyncio.gather(run("other", other), run("suspect", suspect))
    assert order == ["other", "other", "suspect", "suspect"]


@pytest.mark.parametrize(("late", "stuck"), [([True] * 3, 1), ([True, True, False, True, True], 0), ([False] * 5, 0)])
async def test_several_runs_in_a_row_that_do_not_end_in_time_mean_that_something_hangs(
    late: list[bool], stuck: int
) -> None:
    watch, told = Noted(), list[int]()
    guard = Guard(watch, None, lambda: told.append(1))
    for one in late:
        guard.ended("f", in_time=not one)
    assert len(told) == stuck
    assert list(watch.states.values()) == [RunState.STUCK] * stuck


async def test_it_is_known_whether_blocking_work_has_ended_after_its_run_was_cancelled() -> None:
    let_go = ThreadEvent()

    def until_let_go() -> None:
        let_go.wait()

    found: list[bool] = []

    async def handle(context: Context[Any], inputs: Contract) -> Contract:
        await context.run(int)
        assert await context.ends(0.0)
        waiting = asyncio.ensure_future(context.run(until_let_go))
        await _begun(context)
        waiting.cancel()
        await asyncio.wait([waiting])
        found.append(await context.ends(0.05))
        let_go.set()
        found.append(await context.ends(10.0))
        return inputs

    functions = Registry()
    functions.add(FunctionSpec(name="f", inputs=Contract, outputs=Contract, handler=handle))
    async with FunctionEnvironment(functions=functions) as environment:
        await environment.run("f", {})
    assert found == [False, True]


async def _begun(context: Context[Any]) -> None:
    while await context.ends(0.0):
        await asyncio.sleep(0.001)
