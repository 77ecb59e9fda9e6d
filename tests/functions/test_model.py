"""A run holds its model; whoever stops waiting for a load gives up what it will have got."""

from __future__ import annotations

import asyncio
import threading
from threading import Event
from typing import Any

import pytest

from bus.contracts import Contract
from bus.contracts.codec import validate
from bus.errors import OmnibusError
from bus.memory import MemoryBus
from functions import Context
from functions.environment import FunctionEnvironment
from functions.flow.parse import parse
from functions.model import FunctionModel, LoadedModel, ResidentModel
from functions.registry import Registry
from functions.spec import FunctionSpec
from runtime.residency.entry import ModelSource
from runtime.residency.residency import Residency


async def test_a_model_that_stays_is_had_by_every_run() -> None:
    model = LoadedModel("weights", ("a@1",))
    async with model.hold() as held:
        assert held == ("weights", ("a@1",))
    assert await model.refs() == ("a@1",)


async def test_a_model_is_held_for_the_time_of_a_run() -> None:
    residency = Residency()
    residency.add("a", ModelSource(refs=("a@1",), load=lambda: "weights"))
    model = ResidentModel(residency, "a")
    assert residency.residents() == ()
    for _ in range(2):
        async with model.hold() as held:
            assert held == ("weights", ("a@1",))
            assert residency.residents()[0].leases == 1
    assert residency.residents()[0].leases == 0


async def test_a_load_that_nobody_waits_for_any_more_holds_nothing() -> None:
    begun, go = Event(), Event()

    def load() -> str:
        begun.set()
        go.wait()
        return "weights"

    residency = Residency()
    residency.add("a", ModelSource(refs=("a@1",), load=load))

    async def hold() -> None:
        async with ResidentModel(residency, "a").hold():
            pass

    waiting = asyncio.create_task(hold())
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    async with ResidentModel(residency, "a").hold():  # comes after the load that was given up
        pass
    async with asyncio.timeout(10):
        while residency.residents()[0].leases:
            await asyncio.sleep(0)


async def test_all_who_wait_for_a_load_wait_in_one_thread() -> None:
    begun, go = Event(), Event()

    def load() -> str:
        begun.set()
        go.wait()
        return "weights"

    residency = Residency()
    residency.add("a", ModelSource(refs=("a@1",), load=load))
    model = ResidentModel(residency, "a")

    async def run() -> str:
        async with model.hold() as held:
            return str(held.model)

    runs = [asyncio.create_task(run()) for _ in range(20)]
    await asyncio.to_thread(begun.wait)
    runs[0].cancel()
    assert sum(one.name.startswith("omnibus-load") for one in threading.enumerate()) == 1
    go.set()
    assert await asyncio.gather(*runs[1:]) == ["weights"] * 19
    assert residency.residents()[0].leases == 0


async def test_a_load_that_fails_is_told_to_the_run() -> None:
    def load() -> None:
        raise OmnibusError("damaged")

    residency = Residency()
    residency.add("a", ModelSource(refs=("a@1",), load=load))
    with pytest.raises(OmnibusError, match="damaged"):
        async with ResidentModel(residency, "a").hold():
            pass


class Number(Contract):
    """A number."""

    value: int = 0


async def test_what_another_version_answered_is_not_taken_from_the_cache() -> None:
    """The same input before and after a switch: two runs, each with its own version's answer."""

    async def add(context: Context[int], inputs: Number) -> Number:
        return Number(value=inputs.value + context.model)

    spec = FunctionSpec(name="test.add", inputs=Number, outputs=Number, handler=add, cacheable=True)
    functions = Registry()
    functions.add(spec)
    residency = Residency()
    residency.add("add", ModelSource(refs=("m@1",), load=lambda: 10))
    document: dict[str, Any] = {
        "pipeline": "p",
        "inputs": {"value": "required"},
        "stages": {"one": {"function": "test.add", "inputs": {"value": "request.value"}}},
        "outputs": {"value": "one.value"},
    }

    class Served(FunctionEnvironment):
        async def function_model(self, spec: FunctionSpec) -> FunctionModel:
            return ResidentModel(residency, "add")

    async with Served(functions=functions, bus=MemoryBus(ack_wait_s=5)) as environment:
        client = await environment.serve(parse(document, functions))

        async def ask() -> int:
            async with client.submit("p", {"value": 1}, timeout_s=20) as running:
                outputs = await running.outputs()
            return int(validate(Number, outputs).value)

        assert await ask() == 11
        residency.switch("add", ModelSource(refs=("m@2",), load=lambda: 20))
        assert await ask() == 21
