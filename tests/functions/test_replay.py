"""A request that failed is taken up again where it failed, its other branches included."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from bus.contracts import Result, ResultStatus
from bus.errors import InvalidInputError, UnknownRequestError
from bus.memory import MemoryBus
from functions import Retry
from functions.client import PipelineClient
from functions.environment import FunctionEnvironment
from functions.flow.parse import parse
from functions.replay import dead_letters, dead_letters_of, replay
from functions.running import outputs_of
from tests.functions.words import DIAMOND, Log, word_functions

INPUTS = {"words": ["Ab"], "more": ["DE"]}
ANSWER = {"text": "AB de", "more": ["DE"]}


@dataclass
class World:
    """The diamond pipeline being served on a bus whose messages are small."""

    bus: MemoryBus
    client: PipelineClient
    log: Log

    async def run(self, request: str) -> Result:
        async with self.client.submit("diamond", INPUTS, request=request) as running:
            return await running.result()

    async def until_result(self, request: str) -> Result:
        async with asyncio.timeout(20):
            while (result := await self.client.result(request)) is None:
                await asyncio.sleep(0.005)
        return result


@pytest.fixture
async def world() -> AsyncIterator[World]:
    log = Log()
    functions = word_functions(log)
    bus = MemoryBus(max_payload=4_000)
    async with FunctionEnvironment(functions=functions, bus=bus) as environment:
        yield World(bus, await environment.serve(parse(copy.deepcopy(DIAMOND), functions)), log)


@pytest.mark.parametrize("stage", ["big", "small", "both", "say"])
async def test_a_replay_goes_on_from_any_stage_with_what_the_others_brought(world: World, stage: str) -> None:
    world.log.failures[stage] = [InvalidInputError("once")]
    other = {"big": "small", "small": "big"}.get(stage)
    if other is not None:  # the other branch has arrived at the join before this one fails
        world.log.gates[stage] = asyncio.Event()
        waiting = asyncio.ensure_future(world.run("r"))
        joins = await world.bus.bucket("joins")
        while not await joins.entries():
            await asyncio.sleep(0.001)
        world.log.gates[stage].set()
        failed = await waiting
    else:
        failed = await world.run("r")
    assert failed.status is ResultStatus.FAILED
    assert await replay(world.bus, await dead_letters_of(world.bus, "r")) == 1
    assert outputs_of(await world.until_result("r")) == ANSWER
    assert world.log.ran.count(stage) == 2
    if other is not None:
        assert world.log.ran.count(other) == 1


async def test_a_branch_that_was_stopped_because_another_failed_is_replayed_with_it(world: World) -> None:
    world.log.failures["small"] = [InvalidInputError("once")]
    world.log.gates["big"] = asyncio.Event()
    waiting = asyncio.ensure_future(world.run("r"))
    assert (await waiting).status is ResultStatus.FAILED
    world.log.gates["big"].set()  # it ends, and what follows it, the join, waits for the other branch
    assert await replay(world.bus, await dead_letters_of(world.bus, "r")) >= 1
    assert outputs_of(await world.until_result("r")) == ANSWER


async def test_a_stage_that_was_not_started_because_another_failed_is_replayed_with_it(world: World) -> None:
    world.log.failures["small"] = [InvalidInputError("once")]
    world.log.failures["big"] = [Retry("later", delay_s=0.05)]
    result = await world.run("r")
    assert result.status is ResultStatus.FAILED
    while len(await dead_letters(world.bus)) < 2:
        await asyncio.sleep(0.005)
    assert await replay(world.bus, await dead_letters_of(world.bus, "r")) == 2
    assert outputs_of(await world.until_result("r")) == ANSWER


async def test_a_second_replay_takes_up_the_last_failure(world: World) -> None:
    world.log.failures["say"] = [InvalidInputError("one"), InvalidInputError("two")]
    await world.run("r")
    assert await replay(world.bus, await dead_letters_of(world.bus, "r")) == 1
    while len(await dead_letters_of(world.bus, "r")) < 2:
        await asyncio.sleep(0.005)
    assert (await world.until_result("r")).status is ResultStatus.FAILED
    assert await replay(world.bus, await dead_letters_of(world.bus, "r")) == 1
    assert outputs_of(await world.until_result("r")) == ANSWER
    assert world.log.ran.count("say") == 3


async def test_a_letter_without_its_inputs_is_not_replayed(world: World) -> None:
    world.log.failures["big"] = [InvalidInputError("no " * 1_000)]
    async with world.client.submit("diamond", {"words": ["x" * 1_000]}, request="r") as running:
        assert (await running.result()).status is ResultStatus.FAILED
    with pytest.raises(InvalidInputError, match="'r' cannot be replayed from big"):
        await replay(world.bus, await dead_letters_of(world.bus, "r"))


async def test_a_request_without_dead_letters_is_unknown(world: World) -> None:
    with pytest.raises(UnknownRequestError, match="omnibus dlq ls"):
        await dead_letters_of(world.bus, "nobody")


async def test_a_join_that_is_over_leaves_nothing_behind(world: World) -> None:
    assert outputs_of(await world.run("r")) == ANSWER
    joins = await world.bus.bucket("joins")
    async with asyncio.timeout(20):
        while await joins.entries():
            await asyncio.sleep(0.005)
