"""Everything that a function needs, in one process: for trying a function alone and for tests."""

from __future__ import annotations

import asyncio
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bus.contracts import Event, Result, TokenChunk
from bus.contracts.codec import validate
from bus.memory import MemoryBus
from bus.ports import Bus, ObjectStore, TensorPlane
from bus.store.directory import DirectoryObjectStore
from bus.tensors.plane import Plane
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.client import PipelineClient, new_request_id
from functions.context import Context
from functions.flow.catalog import Pipelines, PlanCache
from functions.flow.join import Joins
from functions.flow.plan import Plan
from functions.flow.router import Router
from functions.invoker import Invoker, Services
from functions.model import FunctionModel, LoadedModel
from functions.registry import Registry, registry
from functions.spec import FunctionSpec
from runtime.repository import Repository


class FunctionEnvironment:
    """Runs functions and pipelines in this process, on the in-memory bus. Use as a context manager.

    Attributes:
        bus: The bus that pipelines run on.
        store: An object store in a temporary folder.
        tensors: A tensor plane over it.
        chunks: What functions that were run alone have streamed.
    """

    def __init__(self, models: Path | None = None, functions: Registry = registry, bus: Bus | None = None) -> None:
        self.bus: Bus = bus or MemoryBus()
        self.store: ObjectStore
        self.tensors: TensorPlane
        self.chunks: list[TokenChunk] = []
        self._functions = functions
        self._repository = Repository(models)
        self._models: dict[str, Any] = {}
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="omnibus-run")
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the bus, the store and the tensor plane."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="omnibus-")))
        if isinstance(self.bus, MemoryBus):
            await self._stack.enter_async_context(self.bus)
        self.store = await self._stack.enter_async_context(DirectoryObjectStore(folder / "store"))
        self.tensors = await self._stack.enter_async_context(Plane(self.store, directory=folder / "tensors"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close and remove everything."""
        await self._stack.aclose()
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def run(self, name: str, inputs: dict[str, Any], *, deadline_s: float | None = None) -> dict[str, Any]:
        """Run one function once, with its contracts checked; returns its outputs as plain values.

        Raises:
            OmnibusError: What the function or its contract raised.
        """
        spec = self._functions.get(name)
        event = Event(
            request=new_request_id(), stage="alone", function=name, pipeline="none", created_s=time.time(),
            deadline_s=deadline_s, inputs=inputs,
        )  # fmt: skip
        context: Context[Any] = Context(
            event=event,
            model=await self.model(spec),
            store=self.store,
            tensors=self.tensors,
            emit_chunk=self._keep,
            executor=self._executor,
        )
        context.check()
        outputs = await spec.handler(context, validate(spec.inputs, inputs))
        return outputs.model_dump()

    async def serve(self, *plans: Plan) -> PipelineClient:
        """Serve every function of the pipelines on the bus; returns a client to start them with."""
        client = await self._stack.enter_async_context(PipelineClient(self.bus, Pipelines(plans)))
        cancellations = await self._stack.enter_async_context(Cancellations(await self.bus.bucket("cancels")))
        services = Services(
            bus=self.bus,
            store=self.store,
            tensors=self.tensors,
            router=Router(self.bus, Joins(await self.bus.bucket("joins"))),
            plans=PlanCache(await self.bus.bucket("plans")),
            cache=StageCache(await self.bus.bucket("cache")),
            cancellations=cancellations,
            worker="environment",
            executor=self._executor,
        )
        for name in sorted({name for plan in plans for name in plan.functions}):
            spec = self._functions.get(name)
            invoker = Invoker(spec, await self.function_model(spec), services)
            await self.bus.ensure_function(name)
            consumer = await self.bus.serve(name, spec.slots, invoker)
            self._stack.push_async_callback(consumer.drain, 5.0)
        return client

    async def run_pipeline(self, plan: Plan, inputs: dict[str, Any]) -> Result:
        """Run one request through a pipeline."""
        client = await self.serve(plan)
        async with client.submit(plan.pipeline, inputs) as running:
            return await running.result()

    async def function_model(self, spec: FunctionSpec) -> FunctionModel:
        """Where the function's runs get their model when it is served."""
        refs = tuple(self._repository.resolve(model).ref for model in spec.models)
        return LoadedModel(await self.model(spec), refs)

    async def model(self, spec: FunctionSpec) -> Any:
        """What the function's `setup` loads; loaded once."""
        if spec.setup is None:
            return None
        if spec.name not in self._models:
            self._models[spec.name] = await asyncio.to_thread(spec.setup, self._repository)
        return self._models[spec.name]

    async def _keep(self, chunk: TokenChunk) -> None:
        self.chunks.append(chunk)
