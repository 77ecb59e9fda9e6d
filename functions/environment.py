"""Everything that a function needs, in one process: for trying a function alone and for tests."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
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
from functions.encoder_cache import EncoderCache
from functions.flow.catalog import Pipelines, PlanCache
from functions.flow.join import Joins
from functions.flow.plan import Plan
from functions.flow.router import Router
from functions.invoker import Invoker, Services
from functions.model import FunctionModel, Held
from functions.registry import Registry, registry
from functions.spec import FunctionSpec
from runtime.repository import Repository
from runtime.repository.fixed_names import FixedNames


class EnvironmentModel:
    """The `FunctionModel` of a function in an environment: loaded when it is first asked for, and kept."""

    def __init__(self, environment: FunctionEnvironment, spec: FunctionSpec) -> None:
        self._environment, self._spec = environment, spec

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """See `FunctionModel`."""
        return self._environment.refs(self._spec, chosen)

    @asynccontextmanager
    async def hold(self, version: str | None = None, chosen: str | None = None) -> AsyncIterator[Held]:
        """See `FunctionModel`."""
        yield Held(await self._environment.model(self._spec, chosen), await self.refs(chosen))


class FunctionEnvironment:
    """Runs functions and pipelines in this process, on the in-memory bus. Use as a context manager.

    Attributes:
        bus: The bus that pipelines run on.
        store: An object store in a temporary folder.
        tensors: A tensor plane over it.
        encoder_cache: Media that were encoded before.
        chunks: What functions that were run alone have streamed.
    """

    def __init__(self, models: Path | None = None, functions: Registry = registry, bus: Bus | None = None) -> None:
        self.bus: Bus = bus or MemoryBus()
        self.store: ObjectStore
        self.tensors: TensorPlane
        self.encoder_cache: EncoderCache
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
        self.encoder_cache = await self._stack.enter_async_context(
            EncoderCache(await MemoryBus().bucket("encoded"), self.store)
        )
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
        validated = validate(spec.inputs, inputs)
        context: Context[Any] = Context(
            event=event,
            model=await self.model(spec, spec.choice.of(validated) if spec.choice else None),
            store=self.store,
            tensors=self.tensors,
            encoder_cache=self.encoder_cache,
            emit_chunk=self._keep,
            executor=self._executor,
        )
        context.check()
        outputs = await spec.handler(context, validated)
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
            encoder_cache=self.encoder_cache,
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
        return EnvironmentModel(self, spec)

    async def model(self, spec: FunctionSpec, chosen: str | None = None) -> Any:
        """What the function's `setup` loads; loaded once.

        Args:
            spec: Of the function.
            chosen: Name of the model that it is to load, where it has a choice; None: its default.
        """
        if spec.setup is None:
            return None
        key, repository = spec.name, self._repository
        if spec.choice is not None and chosen is not None:
            manifest = spec.choice.find(repository, chosen)
            if not spec.models or not spec.choice.means(repository, manifest):
                key, repository = f"{spec.name} {manifest.ref}", FixedNames(repository, {spec.choice.name: manifest})
        if key not in self._models:
            self._models[key] = await asyncio.to_thread(spec.setup, repository)
        return self._models[key]

    def refs(self, spec: FunctionSpec, chosen: str | None = None) -> tuple[str, ...]:
        """`id@version` of the models that a run gets."""
        named = {name: name for name in spec.models}
        if spec.choice is not None and chosen is not None:
            named[spec.choice.name] = chosen
        return tuple(self._repository.resolve(name).ref for name in named.values())

    async def _keep(self, chunk: TokenChunk) -> None:
        self.chunks.append(chunk)
