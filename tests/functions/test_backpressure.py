"""A stage that is full slows down the ones before it and loses none of their work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bus.contracts import Contract
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig, connect
from bus.nats.streams import request
from bus.subjects import function_stream
from functions.context import Context
from functions.environment import FunctionEnvironment
from functions.flow.parse import parse
from functions.registry import Registry
from functions.running import outputs_of
from functions.spec import FunctionSpec
from tests.bus.behaviour.receiver import until
from tests.bus.nats_server import nats_server

PLAN = {
    "pipeline": "two",
    "inputs": {"value": "required"},
    "stages": {
        "first": {"function": "test.first", "inputs": {"value": "request.value"}},
        "second": {"function": "test.second", "inputs": {"value": "first.value"}},
    },
    "outputs": {"value": "second.value"},
}


class Value(Contract):
    """A number."""

    value: int


async def _nothing() -> None: ...


async def test_a_stage_whose_next_one_is_full_waits_for_it_and_does_not_run_again(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []
    gate = asyncio.Event()

    async def first(context: Context[Any], inputs: Value) -> Value:
        ran.append(("first", inputs.value))
        return inputs

    async def second(context: Context[Any], inputs: Value) -> Value:
        ran.append(("second", inputs.value))
        await gate.wait()
        return inputs

    functions = Registry()
    for name, handler in (("test.first", first), ("test.second", second)):
        functions.add(FunctionSpec(name=name, inputs=Value, outputs=Value, handler=handler))
    with nats_server(tmp_path / "nats") as url:
        config = NatsConfig(url=url)
        async with NatsBus(config) as bus, FunctionEnvironment(functions=functions, bus=bus) as environment:
            await bus.setup()
            client = await environment.serve(parse(PLAN, functions))
            stream = function_stream("test.second")
            raw = await connect(config, _nothing)
            settings = (await request(raw, f"STREAM.INFO.{stream}", {}))["config"]
            await request(raw, f"STREAM.UPDATE.{stream}", {**settings, "max_msgs": 1})
            await raw.close()
            async with client.submit("two", {"value": 1}) as one, client.submit("two", {"value": 2}) as two:
                await until(lambda: len(ran) == 3)  # both ran the first stage, one of them the second
                gate.set()
                assert outputs_of(await one.result()) == {"value": 1}
                assert outputs_of(await two.result()) == {"value": 2}
    assert sorted(ran) == [("first", 1), ("first", 2), ("second", 1), ("second", 2)]
