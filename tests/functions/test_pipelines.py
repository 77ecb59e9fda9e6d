"""Pipelines on the in-memory bus: choreography, joins, retries, cancels."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from bus import subjects
from bus.contracts import CacheState, DeadLetter, Result, ResultStatus
from bus.contracts.codec import decode
from bus.errors import (
    CancelledRequestError,
    DeadlineExceededError,
    InvalidInputError,
    StoreUnavailableError,
    UnknownPipelineError,
    UnknownRequestError,
)
from functions import Reject, Retry, Skip
from functions.client import PipelineClient
from functions.environment import FunctionEnvironment
from functions.flow.parse import parse
from functions.running import outputs_of
from tests.functions.words import DIAMOND, Log, word_functions


class World:
    """The diamond pipeline being served."""

    def __init__(self, environment: FunctionEnvironment, client: PipelineClient, log: Log) -> None:
        self.environment = environment
        self.client = client
        self.log = log

    async def run(self, **inputs: Any) -> Result:
        async with self.client.submit("diamond", inputs) as running:
            return await running.result()

    async def letters(self) -> list[DeadLetter]:
        found = await self.environment.bus.history(subjects.dead(">"))
        return [decode(DeadLetter, data) for _, data in found]


@pytest.fixture
async def world():
    log = Log()
    functions = word_functions(log)
    plan = parse(copy.deepcopy(DIAMOND), functions)
    async with FunctionEnvironment(functions=functions) as environment:
        yield World(environment, await environment.serve(plan), log)


async def test_branches_meet_at_the_join(world: World):
    result = await world.run(words=["Ab", "c"], more=["DE"])
    assert outputs_of(result) == {"text": "AB C de", "more": ["DE"]}
    assert sorted(world.log.ran) == ["big", "both", "say", "small"]


async def test_a_branch_without_its_input_is_skipped(world: World):
    result = await world.run(words=["a"])
    assert outputs_of(result) == {"text": "A"}
    assert "small" not in world.log.ran


async def test_branches_run_at_the_same_time(world: World):
    world.log.gates = {"big": asyncio.Event(), "small": asyncio.Event()}
    task = asyncio.ensure_future(world.run(words=["a"], more=["b"]))
    while sorted(world.log.ran) != ["big", "small"]:
        await asyncio.sleep(0)
    for gate in world.log.gates.values():
        gate.set()
    assert outputs_of(await task)["text"] == "A b"


async def test_the_answer_is_streamed_before_the_result(world: World):
    async with world.client.submit("diamond", {"words": ["a", "b", "c"]}) as running:
        text = "".join([chunk.text async for chunk in running.chunks()])
        assert text == "A B C "
        assert outputs_of(await running.result())["text"] == "A B C"


async def test_a_redelivered_stage_streams_again_and_the_client_sees_it_once(world: World):
    world.log.failures["say"] = []
    failures = world.log.failures["say"]

    original = world.log.enter

    async def fail_late(stage: str) -> None:
        await original(stage)
        if stage == "say" and world.log.ran.count("say") == 1:
            failures.append(StoreUnavailableError("late"))

    world.log.enter = fail_late  # type: ignore[method-assign]
    async with world.client.submit("diamond", {"words": ["a", "b"]}) as running:
        text = "".join([chunk.text async for chunk in running.chunks()])
    assert text == "A B "


async def test_a_retryable_error_is_tried_again(world: World):
    world.log.failures["big"] = [StoreUnavailableError("not now"), StoreUnavailableError("not yet")]
    result = await world.run(words=["a"])
    assert outputs_of(result)["text"] == "A"
    assert world.log.ran.count("big") == 3


async def test_an_error_that_is_tried_too_often_becomes_a_dead_letter(world: World):
    world.log.failures["big"] = [StoreUnavailableError(f"down {number}") for number in range(3)]
    result = await world.run(words=["a"])
    assert result.status is ResultStatus.FAILED
    with pytest.raises(StoreUnavailableError, match="down 2"):
        outputs_of(result)
    (letter,) = await world.letters()
    assert (letter.event.stage, letter.attempts, letter.error.code) == ("big", 3, "store_unavailable")


async def test_an_error_that_is_not_retryable_is_not_tried_again(world: World):
    world.log.failures["both"] = [InvalidInputError("never", field="left")]
    result = await world.run(words=["a"])
    with pytest.raises(InvalidInputError, match="never") as caught:
        outputs_of(result)
    assert caught.value.details == {"field": "left", "request": result.request, "stage": "both"}
    assert world.log.ran.count("both") == 1


async def test_a_foreign_exception_is_a_handler_error_and_the_worker_lives_on(world: World):
    world.log.failures["big"] = [ZeroDivisionError("oops")]
    result = await world.run(words=["a"])
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("handler_failed", "words.upper: ZeroDivisionError: oops")
    assert outputs_of(await world.run(words=["b"]))["text"] == "B"


async def test_signals_decide_what_happens_to_the_message(world: World):
    world.log.failures = {"big": [Retry("later", delay_s=0.01)], "small": [Skip("nothing to do")]}
    result = await world.run(words=["a"], more=["b"])
    assert outputs_of(result)["text"] == "A"
    world.log.failures = {"big": [Reject("never again")]}
    result = await world.run(words=["x"])
    assert result.error is not None
    assert "never again" in result.error.message


async def test_a_run_with_the_same_inputs_is_a_cache_hit(world: World):
    first = await world.run(words=["again"])
    second = await world.run(words=["again"])
    assert outputs_of(first) == outputs_of(second)
    assert world.log.ran.count("big") == 1
    spans = {span.stage: span for span in await world.client.trace(second.request)}
    assert spans["big"].cache is CacheState.HIT
    assert spans["say"].cache is CacheState.OFF


async def test_a_trace_tells_every_stage_and_try(world: World):
    world.log.failures["big"] = [StoreUnavailableError("not now")]
    result = await world.run(words=["a"], more=["b"])
    spans = await world.client.trace(result.request)
    assert sorted((span.stage, span.attempt, span.status) for span in spans) == [
        ("big", 1, "retry"),
        ("big", 2, "ok"),
        ("both", 1, "ok"),
        ("say", 1, "ok"),
        ("small", 1, "ok"),
    ]
    assert all(span.queued_s <= span.started_s <= span.finished_s for span in spans)


async def test_a_cancelled_request_stops_before_its_next_stage(world: World):
    world.log.gates["big"] = asyncio.Event()
    async with world.client.submit("diamond", {"words": ["a"]}) as running:
        while "big" not in world.log.ran:
            await asyncio.sleep(0)
        await world.client.cancel(running.id)
        world.log.gates["big"].set()
        result = await running.result()
    assert result.status is ResultStatus.CANCELLED
    with pytest.raises(CancelledRequestError):
        outputs_of(result)
    assert "say" not in world.log.ran


async def test_leaving_early_cancels(world: World):
    world.log.gates["big"] = asyncio.Event()
    async with world.client.submit("diamond", {"words": ["a"]}) as running:
        while "big" not in world.log.ran:
            await asyncio.sleep(0)
    world.log.gates["big"].set()
    while await world.client.result(running.id) is None:
        await asyncio.sleep(0.01)
    assert "say" not in world.log.ran


async def test_a_request_past_its_deadline_is_not_started(world: World):
    async with world.client.submit("diamond", {"words": ["a"]}, timeout_s=-1) as running:
        result = await running.result()
    with pytest.raises(DeadlineExceededError):
        outputs_of(result)
    assert world.log.ran == []


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'words' is missing"),
        ({"words": []}, "'words' is missing"),
        ({"words": ["a"], "x": 1}, "'x' is not an input"),
    ],
)
async def test_inputs_that_are_not_the_pipelines_are_refused_at_the_door(
    world: World, inputs: dict[str, Any], message: str
):
    with pytest.raises(InvalidInputError, match=message):
        async with world.client.submit("diamond", inputs):
            pass


async def test_an_input_outside_the_contract_fails_the_request_and_names_the_field(world: World):
    result = await world.run(words=[{"no": "word"}])
    with pytest.raises(InvalidInputError, match=r"Words: words\.0: Input should be a valid string"):
        outputs_of(result)


async def test_an_unknown_pipeline_names_the_nearest(world: World):
    with pytest.raises(UnknownPipelineError, match="did you mean 'diamond'"):
        world.client.submit("diamnod", {})


@pytest.mark.parametrize("request_id", ["*", ">", "a.b", "", "x" * 65, 'a","b'])
async def test_an_id_that_could_name_other_requests_is_unknown(world: World, request_id: str):
    await world.run(words=["secret"])
    with pytest.raises(UnknownRequestError):
        await world.client.result(request_id)
    with pytest.raises(UnknownRequestError):
        await world.client.trace(request_id)


async def test_the_same_request_twice_runs_once(world: World):
    for _ in range(2):
        async with world.client.submit("diamond", {"words": ["a"]}, request="same") as running:
            assert outputs_of(await running.result())["text"] == "A"
    assert world.log.ran.count("big") == 1
