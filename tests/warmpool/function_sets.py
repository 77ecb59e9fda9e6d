"""What a worker is, but for its process: functions that need models, and who asks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bus.contracts import Contract, ErrorRecord, Result
from bus.ports import Bus
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.client import PipelineClient
from functions.context import Context
from functions.environment import FunctionEnvironment
from functions.flow.catalog import Pipelines, PlanCache
from functions.flow.join import Joins
from functions.flow.parse import parse
from functions.flow.router import Router
from functions.invoker import Services
from functions.registry import Registry
from functions.spec import FunctionSpec
from runtime.engines.onnx import OnnxSession
from runtime.repository import Catalog, Repository
from runtime.residency.residency import Residency
from tests.runtime.engines.small_model import weight
from warmpool.function_set import FunctionSet
from warmpool.models import WorkerModels


class Number(Contract):
    """A number."""

    value: float


async def handle(context: Context[Any], inputs: Number) -> Number:
    """Sum of x · w, with the number in every place of x."""
    (found,) = context.model.run({"x": np.full((1, 64), inputs.value, np.float32)})
    return Number(value=float(found.sum()))


def spec(name: str, *models: str, setup: Callable[[Repository], Any] | None = None) -> FunctionSpec:
    def load(repository: Repository) -> OnnxSession:
        return OnnxSession(repository.file(repository.resolve(models[0]), "model.onnx"), threads=1)

    return FunctionSpec(name=name, inputs=Number, outputs=Number, handler=handle, setup=setup or load, models=models)


HERE, LATE = spec("test.here", "tiny"), spec("test.late", "late")


ANSWER = float(weight(seed=1).sum())


def pipelines(specs: tuple[FunctionSpec, ...]) -> Pipelines:
    """One of each function, of its name."""
    functions = Registry()
    plans = []
    for one in specs:
        functions.add(one)
        document = {
            "pipeline": one.name.replace(".", "-"),
            "inputs": {"value": "required"},
            "stages": {"only": {"function": one.name, "inputs": {"value": "request.value"}}},
            "outputs": {"value": "only.value"},
        }
        plans.append(parse(document, functions))
    return Pipelines(plans)


class Worker:
    """What a worker is, but for its process."""

    def __init__(
        self, root: Path, bus: Bus, services: Services, specs: tuple[FunctionSpec, ...], *, on_demand: bool
    ) -> None:
        self.repository = Repository(root, catalog=Catalog(()))
        self.models = WorkerModels(self.repository, Residency(), self._announce)
        self.elsewhere: set[str] = set()
        self.ended = asyncio.Event()
        """Set when nothing is mended any more."""
        self.changes: list[tuple[str, ...]] = []
        self.timings_s: dict[str, float] = {}
        self.client = PipelineClient(bus, pipelines(specs))
        self.functions = FunctionSet(
            specs, bus, services, self.models,
            elsewhere=self._elsewhere, on_change=self._note, timings_s=self.timings_s,
            on_demand=on_demand,
        )  # fmt: skip

    def error(self, name: str) -> ErrorRecord | None:
        return self.functions.status[name].error

    async def ask(self, name: str) -> Result:
        async with self.client.submit(name.replace(".", "-"), {"value": 1.0}) as running:
            return await running.result()

    async def _announce(self, manifest: object) -> None:
        """Nobody is told."""

    async def _elsewhere(self) -> set[str]:
        return self.elsewhere

    async def _note(self) -> None:
        self.changes.append(self.functions.ready)


@asynccontextmanager
async def working(root: Path, *specs: FunctionSpec, on_demand: bool = False) -> AsyncIterator[Worker]:
    async with FunctionEnvironment(root) as environment, asyncio.timeout(60):
        bus = environment.bus
        async with Cancellations(await bus.bucket("cancels")) as cancellations:
            services = Services(
                bus=bus, store=environment.store, tensors=environment.tensors,
                router=Router(bus, Joins(await bus.bucket("joins"))), plans=PlanCache(await bus.bucket("plans")),
                cache=StageCache(await bus.bucket("cache")), encoder_cache=environment.encoder_cache,
                cancellations=cancellations, worker="test",
            )  # fmt: skip
            for one in specs:
                await bus.ensure_function(one.name)
            worker = Worker(root, bus, services, specs, on_demand=on_demand)
            async with worker.client:
                yield worker
            for consumer in worker.functions.consumers:
                await consumer.close()


@asynccontextmanager
async def mending(worker: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(worker.models.watch()), asyncio.create_task(worker.functions.mend())]
    tasks[1].add_done_callback(lambda _: worker.ended.set())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
