"""A worker: one process that serves the functions of its groups until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bus.contracts import ModelManifest, WorkerState
from bus.errors import ModelCorruptError, OmnibusError, WorkerStartError
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import Consumer
from bus.store.location import open_store
from bus.store.once import KEEP_S, expire
from bus.subjects import START_FUNCTION
from bus.tensors.plane import Plane
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.encoder_cache import DEFAULT_BUDGET_NBYTES, EncoderCache
from functions.flow.catalog import BUILT_IN, Pipelines, PlanCache
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.flow.start import SLOTS, Starter
from functions.invoker import Invoker, Services
from functions.model import FunctionModel
from functions.registry import load_functions, registry
from functions.spec import FunctionSpec
from runtime.engines.cores import use_cores
from runtime.engines.graph_cache import GraphCache, use_graph_cache
from runtime.engines.providers import use_device
from runtime.generation.limits import use_repeatable
from runtime.repository import Repository
from runtime.repository.location import MEMORY
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency
from warmpool.announcing import Announcer
from warmpool.lease import LeaseKeeper
from warmpool.models import WorkerModels, check_pinned

log = logging.getLogger("omnibus.worker")

_CLEANING_FUNCTION = "media.fetch"
_CLEAN_EVERY_S = 3600.0
_PATIENCE_S = 10.0
"""How long a model's load waits for the runs of those that it takes the memory of."""


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker serves and where everything is.

    Attributes:
        groups: Function groups that it serves; empty: all.
        nats: The bus.
        store_url: The object store.
        store_access_key: For S3.
        store_secret_key: For S3.
        tensors: Folder of this host's shared tensors; None: the default of the tensor plane.
        models: Models folder; None: the default of the repository.
        modules: Packages whose functions are loaded besides the built-in stages.
        pipelines: Folders of pipeline files besides the built-in ones.
        threads: Cores that it may use: threads of a model's run, and blocking calls that run at once.
        device: What models run on: `auto` or a provider's name.
        device_fallback: Whether another provider may stand in for it.
        repeatable: Whether no answer depends on who else is served.
        model_memory_nbytes: Bytes for all models in memory; None: what the host has.
        pinned: Functions and models that stay in memory.
        encoder_cache_nbytes: Bytes of media that stay encoded for all requests; 0: none do.
        share_encoded: Whether tenants share them.
        graphs: Folder of optimised graphs; None: in the models folder.
        keep_graphs: Whether optimised graphs are kept at all.
        keep_objects_s: Media and tensors that nobody has made for so long are removed; 0: never.
        grace_s: How long running handlers may go on after the worker was told to stop.
    """

    groups: tuple[str, ...] = ()
    nats: NatsConfig = field(default_factory=NatsConfig)
    store_url: str
    store_access_key: str = field(default="", repr=False)
    store_secret_key: str = field(default="", repr=False)
    tensors: Path | None = None
    models: Path | None = None
    modules: tuple[str, ...] = ()
    pipelines: tuple[Path, ...] = ()
    threads: int = 2
    device: str = "auto"
    device_fallback: bool = False
    repeatable: bool = True
    model_memory_nbytes: int | None = None
    pinned: tuple[str, ...] = ()
    encoder_cache_nbytes: int = DEFAULT_BUDGET_NBYTES
    share_encoded: bool = False
    graphs: Path | None = None
    keep_graphs: bool = True
    keep_objects_s: float = KEEP_S
    grace_s: float = 10.0


class Worker:
    """Serves functions. `run` returns after SIGTERM or SIGINT; a second signal ends the process at once."""

    def __init__(self, config: WorkerConfig) -> None:
        self.id = f"{'-'.join(config.groups) or 'all'}-{secrets.token_hex(3)}"
        self._config = config
        self._consumers: list[Consumer] = []
        self._invokers: list[Invoker] = []
        self._encoder_cache: EncoderCache | None = None
        self._slots = 0
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop.

        Raises:
            WorkerStartError: No function to serve, or one whose model does not load.
            BusUnavailableError: (retryable) no bus.
        """
        self._handle_signals()
        started_s = time.monotonic()
        self._use_engines()
        specs = self._specs()
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(NatsBus(self._config.nats))
            await bus.setup()
            lease = LeaseKeeper(
                await bus.bucket("workers"), self.id, "-".join(self._config.groups) or "all", self._load, self._cached
            )
            await lease.open()
            stack.push_async_callback(lease.close)
            services = await self._services(bus, stack)
            await self._serve(bus, services, specs, lease, stack)
            await lease.tell(WorkerState.READY)
            stack.callback(asyncio.get_running_loop().create_task(self._clean(services)).cancel)
            log.info("worker %s is ready after %.2f s", self.id, time.monotonic() - started_s)
            await self._stop.wait()
            log.info("worker %s: stopping", self.id)
            drained = asyncio.gather(*(consumer.drain(self._config.grace_s) for consumer in self._consumers))
            await asyncio.sleep(0)  # the pulls are withdrawn before anybody is told that nothing new is taken
            await lease.tell(WorkerState.DRAINING)
            await drained

    def _use_engines(self) -> None:
        config = self._config
        use_cores(config.threads)
        use_device(config.device, fallback=config.device_fallback)
        use_repeatable(config.repeatable)
        use_graph_cache(GraphCache(config.graphs) if config.keep_graphs else None)

    def _specs(self) -> list[FunctionSpec]:
        groups = self._config.groups
        specs = [spec for spec in load_functions(self._config.modules) if not groups or spec.group in groups]
        unknown = set(groups) - {spec.group for spec in specs}
        if unknown or not specs:
            known = ", ".join(sorted({spec.group for spec in registry}))
            raise WorkerStartError(f"no function is in group {', '.join(sorted(unknown))!r}; groups: {known}")
        return specs

    async def _services(self, bus: NatsBus, stack: AsyncExitStack) -> Services:
        config = self._config
        store = await stack.enter_async_context(
            open_store(config.store_url, access_key=config.store_access_key, secret_key=config.store_secret_key)
        )
        self._encoder_cache = await stack.enter_async_context(
            EncoderCache(
                await bus.bucket("encoded"),
                store,
                budget_nbytes=config.encoder_cache_nbytes,
                shared=config.share_encoded,
            )
        )
        executor = ThreadPoolExecutor(max_workers=config.threads, thread_name_prefix="omnibus-run")
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        return Services(
            bus=bus,
            store=store,
            tensors=await stack.enter_async_context(Plane(store, directory=config.tensors)),
            router=Router(bus, Joins(await bus.bucket("joins"))),
            plans=PlanCache(await bus.bucket("plans")),
            cache=StageCache(await bus.bucket("cache")),
            encoder_cache=self._encoder_cache,
            cancellations=await stack.enter_async_context(Cancellations(await bus.bucket("cancels"))),
            worker=self.id,
            executor=executor,
        )

    async def _serve(
        self, bus: NatsBus, services: Services, specs: list[FunctionSpec], lease: LeaseKeeper, stack: AsyncExitStack
    ) -> None:
        pipelines = Pipelines.load(registry, (BUILT_IN, *self._config.pipelines))
        await pipelines.announce(await bus.bucket("plans"))
        for name in {name for plan in pipelines for name in plan.functions} | {spec.name for spec in specs}:
            await bus.ensure_function(name)  # of other workers, too: their work is kept until they are there
        await bus.ensure_function(START_FUNCTION)
        repository = Repository(self._config.models)
        announcer = Announcer(await bus.bucket("models"), repository, specs)
        models = self._models(repository, announcer, stack)
        ready: list[str] = []
        for spec in specs:
            self._invokers.append(Invoker(spec, await self._set_up(spec, models), services))
            self._consumers.append(await bus.serve(spec.name, spec.slots, self._invokers[-1]))
            self._slots += spec.slots
            ready.append(spec.name)
            await lease.tell(WorkerState.STARTING, functions=tuple(ready))
        for watching in (models.watch(), announcer.watch()):
            stack.callback(asyncio.get_running_loop().create_task(watching, name="omnibus-models").cancel)
        self._consumers.append(await bus.serve(START_FUNCTION, SLOTS, Starter(services.router, pipelines)))
        await lease.tell(WorkerState.STARTING, models=tuple(sorted({name for spec in specs for name in spec.models})))

    def _models(self, repository: Repository, announcer: Announcer, stack: AsyncExitStack) -> WorkerModels:
        check_pinned(self._config.pinned, {spec.name for spec in registry}, repository)
        budget = self._config.model_memory_nbytes
        residency = Residency(
            {} if budget is None else {"cpu": budget},
            ledger=MemoryLedger(repository.root / MEMORY),
            patience_s=_PATIENCE_S,
        )
        stack.callback(residency.close)

        async def announce(manifest: ModelManifest) -> None:
            try:
                await announcer.tell()
            except ModelCorruptError as error:  # of any model that is installed, this one is fine
                log.error("models are not announced: %s", error)

        return WorkerModels(repository, residency, announce, self._config.pinned)

    async def _set_up(self, spec: FunctionSpec, models: WorkerModels) -> FunctionModel:
        started_s = time.monotonic()
        try:
            model = await models.add(spec)
        except Exception as error:
            reason = error.message if isinstance(error, OmnibusError) else f"{type(error).__name__}: {error}"
            raise WorkerStartError(f"worker {self.id}: function {spec.name!r} did not start: {reason}") from error
        log.info("worker %s: %s set up in %.2f s", self.id, spec.name, time.monotonic() - started_s)
        return model

    async def _clean(self, services: Services) -> None:
        """Remove old objects now and then; one group is enough for it."""
        mine = any(invoker.spec.name == _CLEANING_FUNCTION for invoker in self._invokers)
        while mine and self._config.keep_objects_s:
            try:
                removed = await expire(services.store, self._config.keep_objects_s)
            except OmnibusError as error:
                log.warning("old objects were not removed: %s", error)
            else:
                log.info("%d old objects removed", removed)
            await asyncio.sleep(_CLEAN_EVERY_S)

    def _load(self) -> tuple[int, int, int]:
        busy = sum(consumer.busy for consumer in self._consumers)
        return self._slots, busy, sum(invoker.served for invoker in self._invokers)

    def _cached(self) -> dict[str, int]:
        return {} if self._encoder_cache is None else self._encoder_cache.statistics

    def _handle_signals(self) -> None:
        def on_signal() -> None:
            if self._stop.is_set():
                os._exit(1)
            self._stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
