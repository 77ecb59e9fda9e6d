"""Whatever a message or a handler does, the message is settled, the client is told, and the worker lives on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from bus import subjects
from bus.contracts import Contract, DeadLetter, Lane, Result, ResultStatus
from bus.contracts.codec import decode
from bus.errors import InvalidInputError
from bus.memory import MemoryBus
from functions import Context, Retry
from functions.client import PipelineClient
from functions.environment import FunctionEnvironment
from functions.flow.join import Joins
from functions.flow.parse import parse
from functions.flow.record import MOST_NBYTES, MOST_TEXT
from functions.flow.router import Router
from functions.flow.start import Starter
from functions.registry import Registry
from functions.spec import FunctionSpec

FUNCTION = "test.one"


class Anything(Contract):
    """Any value."""

    value: Any = None


Handle = Callable[[Context[Any], Anything], Awaitable[Anything]]


class Stage:
    """One function as a pipeline on a bus in memory."""

    def __init__(
        self, handle: Handle, *, max_payload: int = 1024 * 1024, max_attempts: int = 3, timeout_s: float = 5.0
    ) -> None:
        spec = FunctionSpec(
            name=FUNCTION,
            inputs=Anything,
            outputs=Anything,
            handler=handle,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
        )
        functions = Registry()
        functions.add(spec)
        self.bus = MemoryBus(ack_wait_s=0.05, max_payload=max_payload)
        self.environment = FunctionEnvironment(functions=functions, bus=self.bus)
        source = {"function": FUNCTION, "inputs": {"value": "request.value?"}}
        document = {"pipeline": "p", "inputs": {"value": "optional"}, "stages": {"one": source}}
        self.plan = parse({**document, "outputs": {"value": "one.value"}}, functions)

    async def __aenter__(self) -> Stage:
        await self.environment.__aenter__()
        self.client: PipelineClient = await self.environment.serve(self.plan)
        return self

    async def __aexit__(self, *exit_: Any) -> None:
        await self.environment.__aexit__(None, None, None)

    async def run(self, value: Any = 1) -> Result:
        async with self.client.submit("p", {"value": value}, timeout_s=20) as running:
            return await running.result()

    async def letters(self) -> list[DeadLetter]:
        return [decode(DeadLetter, data) for _, data in await self.bus.history(subjects.dead(">"))]

    async def settled(self) -> None:
        async with asyncio.timeout(20):
            while (await self.bus.backlog(FUNCTION))[Lane.INTERACTIVE] != (0, 0):
                await asyncio.sleep(0.005)


def raising(error: BaseException) -> Handle:
    async def handle(context: Context[Any], inputs: Anything) -> Anything:
        raise error

    return handle


def answering(value: Any, **notes: Any) -> Handle:
    async def handle(context: Context[Any], inputs: Anything) -> Anything:
        context.note(**notes)
        return Anything(value=value)

    return handle


async def test_an_event_that_fits_and_whose_dead_letter_does_not_still_fails_its_request() -> None:
    async with Stage(raising(InvalidInputError("no " * 500)), max_payload=8_000) as stage:
        result = await stage.run("x" * 6_500)
        assert result.error is not None
        assert (result.status, result.error.code) == (ResultStatus.FAILED, "invalid_input")
        (letter,) = await stage.letters()
        assert letter.event.request == result.request
        assert "left_out" in letter.error.details
        await stage.settled()


async def test_bytes_that_are_no_event_become_a_dead_letter_however_many_they_are() -> None:
    async with Stage(answering(1), max_payload=8_000) as stage:
        subject = subjects.work(FUNCTION, Lane.INTERACTIVE)
        await stage.bus.publish(subject, b"x" * 7_700, message_id="raw")
        await stage.settled()
        (letter,) = await stage.letters()
        assert letter.error.code == "invalid_input"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("long " * 1_000_000),
        OSError("no file \udcff"),
        InvalidInputError("odd", shape=np.float32(0.5), deep=object(), long=b"x" * 2_000_000),
    ],
)
async def test_an_error_of_any_size_and_content_reaches_the_client(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "omnibus.invoker")  # a report of this test could not carry what it logs
    async with Stage(raising(error)) as stage:
        result = await stage.run()
        assert result.error is not None
        assert len(result.error.message) <= MOST_TEXT + 1
        assert result.error.details.get("shape", 0.5) == 0.5
        assert len(str(result.error.details)) < 2 * MOST_NBYTES
        assert len(await stage.letters()) == 1
        await stage.settled()


@pytest.mark.parametrize("note", [np.float32(0.5), object(), "x" * 2_000_000, 2**70, "\ud800"])
async def test_a_note_that_cannot_travel_does_not_change_how_the_request_ends(note: Any) -> None:
    async with Stage(answering("fine", note=note)) as stage:
        result = await stage.run()
        assert result.outputs == {"value": "fine"}
        assert await stage.letters() == []
        (span,) = await stage.client.trace(result.request)
        assert (span.status, list(span.details)) == ("ok", ["note"])


@pytest.mark.parametrize("value", [np.float32(0.5), object(), 2**70])
async def test_outputs_that_cannot_travel_are_an_error_of_the_function_not_of_the_client(value: Any) -> None:
    async with Stage(answering(value)) as stage:
        result = await stage.run()
        assert result.error is not None
        assert result.error.code == "handler_failed"
        assert "not plain values" in result.error.message


async def test_a_timeout_inside_a_handler_is_not_called_the_functions_own() -> None:
    async with Stage(raising(TimeoutError("the database did not answer"))) as stage:
        result = await stage.run()
        assert result.error is not None
        assert (result.error.code, result.error.stage) == ("handler_failed", "one")
        assert "the database did not answer" in result.error.message


async def test_a_run_that_finds_no_memory_is_tried_again_and_one_that_never_does_says_what_to_do() -> None:
    short = [MemoryError("Unable to allocate 31.6 MiB")]

    async def handle(context: Context[Any], inputs: Anything) -> Anything:
        if short:
            raise short.pop()
        return Anything(value=2)

    async with Stage(handle) as stage:
        assert (await stage.run()).outputs == {"value": 2}
    async with Stage(raising(MemoryError("Unable to allocate 31.6 MiB")), max_attempts=2) as stage:
        error = (await stage.run()).error
        assert error is not None
        assert (error.code, error.retryable) == ("overloaded", True)
        assert "no memory left (Unable to allocate 31.6 MiB); send less, or give workers more memory" in error.message


async def test_a_function_that_runs_too_long_is_a_dead_letter_for_somebody_to_look_at() -> None:
    async def handle(context: Context[Any], inputs: Anything) -> Anything:
        await asyncio.get_running_loop().create_future()
        return inputs

    async with Stage(handle, timeout_s=0.05) as stage:
        result = await stage.run()
        assert result.error is not None
        assert (result.error.code, result.status) == ("deadline_exceeded", ResultStatus.FAILED)
        (letter,) = await stage.letters()
        assert letter.error.message == "test.one ran longer than its 0.05 s"


async def test_a_request_whose_deadline_passed_is_no_dead_letter() -> None:
    async with Stage(answering(1)) as stage:
        async with stage.client.submit("p", {"value": 1}, timeout_s=-1) as running:
            result = await running.result()
        assert result.error is not None
        assert result.error.code == "deadline_exceeded"
        assert await stage.letters() == []


async def test_a_message_that_asks_for_another_try_for_ever_ends_with_its_reason() -> None:
    async with Stage(raising(Retry("still no token", delay_s=0.001)), max_attempts=3) as stage:
        result = await stage.run()
        assert result.error is not None
        assert result.error.code == "delivery_exhausted"
        assert "3 times" in result.error.message
        assert "still no token" in result.error.message


@pytest.mark.parametrize(
    "data",
    [
        b'{"request": "r", "pipeline": "p", "inputs": {"value": 1180591620717411303424}}',
        b'{"request": "r", "pipeline": "p", "inputs": {"value": "\\ud800"}}',
        b'{"request": "r", "pipeline": "p", "inputs": {"other": 1}}',
        b'{"request": "r", "pipeline": "nope"}',
    ],
)
async def test_a_request_that_cannot_be_started_fails_and_is_not_delivered_again(data: bytes) -> None:
    async with Stage(answering(1)) as stage:
        await _serve_starter(stage)
        await stage.bus.publish(subjects.work(subjects.START_FUNCTION, Lane.BATCH), data, message_id="r")
        await _started(stage)
        result = await stage.client.result("r")
        assert result is not None
        assert result.status is ResultStatus.FAILED


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"request": "r", "pipeline": "' + b"x" * 900_000 + b'"}'])
async def test_a_request_that_nobody_can_be_told_of_is_given_up(data: bytes) -> None:
    async with Stage(answering(1), max_payload=901_000) as stage:
        await _serve_starter(stage)
        await stage.bus.publish(subjects.work(subjects.START_FUNCTION, Lane.BATCH), data, message_id="r")
        await _started(stage)


async def _serve_starter(stage: Stage) -> None:
    starter = Starter(Router(stage.bus, Joins(await stage.bus.bucket("joins"))), stage.client.pipelines)
    await stage.bus.ensure_function(subjects.START_FUNCTION)
    await stage.bus.serve(subjects.START_FUNCTION, 4, starter)


async def _started(stage: Stage) -> None:
    async with asyncio.timeout(20):
        while (await stage.bus.backlog(subjects.START_FUNCTION))[Lane.BATCH] != (0, 0):
            await asyncio.sleep(0.005)
