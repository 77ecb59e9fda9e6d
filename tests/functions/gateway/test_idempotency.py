"""An idempotency key holds for as long as its request is known, not just as long as the bus knows a message."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest

from bus.memory import bus as memory
from bus.subjects import START_FUNCTION
from functions.environment import FunctionEnvironment
from functions.flow.join import Joins
from functions.flow.parse import parse
from functions.flow.router import Router
from functions.flow.start import Starter
from functions.gateway.jobs import accept
from functions.gateway.services import GatewayServices
from tests.functions.words import DIAMOND, Log, word_functions


async def test_a_request_that_has_ended_is_not_run_again_for_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_DUPLICATE_WINDOW_S", -1.0)  # every message id is an old one
    log = Log()
    functions = word_functions(log)
    async with FunctionEnvironment(functions=functions) as environment:
        client = await environment.serve(parse(copy.deepcopy(DIAMOND), functions))
        bus = environment.bus
        await bus.ensure_function(START_FUNCTION)
        starter = Starter(Router(bus, Joins(await bus.bucket("joins"))), client.pipelines)
        consumer = await bus.serve(START_FUNCTION, 4, starter)
        services = GatewayServices(
            bus=bus, store=environment.store, tensors=environment.tensors, client=client, functions=functions
        )
        first = await accept(services, "key-1", "diamond", {"words": ["a"]}, {})
        assert json.loads(bytes(first.body))["status"] == "queued"
        while await client.result("key-1") is None:
            await asyncio.sleep(0.001)
        again = await accept(services, "key-1", "diamond", {"words": ["a"]}, {})
        assert (again.status_code, json.loads(bytes(again.body))["status"]) == (202, "succeeded")
        for function in (
            START_FUNCTION,
            "words.upper",
            "words.merge",
            "words.say",
        ):
            while any(counts != (0, 0) for counts in (await bus.backlog(function)).values()):
                await asyncio.sleep(0.001)
        await consumer.drain(5)
    assert sorted(log.ran) == ["big", "both", "say"]
