"""What a worker has, from the coldest to the warmest: a bus and stores; models and consumers; models that have run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Self

from bus.contracts import ModelManifest, Tier, WorkerState
from bus.contracts.codec import digest_of
from bus.errors import ModelCorruptError, OmnibusError, WorkerStartError
from bus.nats.bus import NatsBus
from bus.ports import Consumer
from bus.store.location import open_store
from bus.store.once import expire
from bus.subjects import START_FUNCTION
from bus.tensors.plane import Plane
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.encoder_cache import EncoderCache
from functions.flow.catalog import BUILT_IN, Pipelines, PlanCache
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.flow.start import SLOTS, Starter
from functions.guard import Guard
from functions.invoker import Invoker, Services
from functions.model import FunctionModel
from functions.registry import load_functions, registry
from functions.spec import FunctionSpec
from functions.suspects import Suspects
from functions.watch import RunWatch
from runtime.repository import Repository
from runtime.repository.location import MEMORY
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency
from warmpool.announcing import Announcer
from warmpool.config import WorkerConfig
from warmpool.lease import LeaseKeeper
from warmpool.models import WorkerModels, check_pinned

log = logging.getLogger("omnibus.worker")

_CLEANING_FUNCTION = "media.fetch"
_CLEAN_EVERY_S = 3600.0
_PATIENCE_S = 10.0
"""How long a model's load waits for the runs of those that it takes the memory of."""


class Serving:
    """The functions of a worker's groups. As an open context manager it is primed; `load` makes it serve.

    Args:
        config: What it serves and where everything is.
        worker: The worker's id.
        watch: Is told what is done with each message.
        on_stuck: Called when a run hangs.

    Attributes:
        timings_s: Seconds that each phase took; emptied by whoever tells them.
    """

    def __init__(
        self,
        config: WorkerConfig,
        worker: str,
        watch: RunWatch | None = None,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self.timings_s: dict[str, float] = {}
        self._watch, self._on_stuck = watch, on_stuck
        self._config, self._worker = config, worker
        self._specs: list[FunctionSpec] = []
        self._consumers: list[Consumer] = []
        self._invokers: list[Invoker] = []
        self._encoder_cache: EncoderCache | None = None
        self._slots = 0
        self._stack = AsyncExitStack()
        self._bus: NatsBus
        self._lease: LeaseKeeper
        self._services: Services

    async def __aenter__(self) -> Self:
        """Connect, and tell the registry that there is a worker.

        Raises:
            WorkerStartError: No function to serve.
            BusUnavailableError: (retryable) no bus.
        """
        config = self._config
        self._specs = _specs(config)
        try:
            with self._timed("bus"):
                self._bus = await self._stack.enter_async_context(NatsBus(config.nats))
                await self._bus.setup()
            with self._timed("services"):
                group = "-".join(config.groups) or "all"
                registry_bucket = await self._bus.bucket("workers")
                self._lease = LeaseKeeper(registry_bucket, self._worker, group, self.load_counts, self._cached)
                await self._lease.open()
                self._stack.push_async_callback(self._lease.close)
                self._services = await self._open_services()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything; what was not drained is handed back."""
        await self._stack.aclose()

    async def load(self) -> None:
        """Load the models of every function, and take messages from then on.

        Raises:
            WorkerStartError: A model does not load.
            BusUnavailableError: (retryable) no bus.
        """
        with self._timed("streams"):
            pipelines = Pipelines.load(registry, (BUILT_IN, *self._config.pipelines))
            await pipelines.announce(await self._bus.bucket("plans"))
            # Of other workers, too: their work is kept until they are there.
            functions = {name for plan in pipelines for name in plan.functions} | {START_FUNCTION}
            functions |= {spec.name for spec in self._specs}
            await self._ensure(functions)
        self._consumers.append(await self._bus.serve(START_FUNCTION, SLOTS, Starter(self._services.router, pipelines)))
        repository = Repository(self._config.models)
        announcer = Announcer(await self._bus.bucket("models"), repository, self._specs)
        models = self._models(repository, announcer)
        for spec in await self._by_need():
            with self._timed(spec.name):
                self._invokers.append(Invoker(spec, await self._set_up(spec, models), self._services))
            self._consumers.append(await self._bus.serve(spec.name, spec.slots, self._invokers[-1]))
            self._slots += spec.slots
            ready = tuple(invoker.spec.name for invoker in self._invokers)
            await self._lease.tell(WorkerState.STARTING, functions=ready)
        for watching in (models.watch(), announcer.watch(), self._clean()):
            self._stack.callback(asyncio.get_running_loop().create_task(watching, name="omnibus-models").cancel)
        names = {name for spec in self._specs for name in spec.models}
        await self._lease.tell(WorkerState.READY, models=tuple(sorted(names)), tier=Tier.LOADED)

    async def warm_up(self) -> None:
        """Run the models once, so that the first message is as fast as the next ones."""
        for invoker in self._invokers:
            with self._timed(f"{invoker.spec.name} run"):
                try:
                    await invoker.warm_up()
                except OmnibusError as error:  # no reason not to serve
                    log.warning("%s was not warmed up: %s", invoker.spec.name, error.message)
        await self._lease.tell(WorkerState.READY, tier=Tier.HOT)

    async def stop_pulling(self) -> None:
        """Take nothing new; what runs goes on."""
        await asyncio.gather(*(consumer.stop_pulling() for consumer in self._consumers))

    async def drain(self) -> None:
        """Take nothing new, and wait for what runs; what is not done within the grace period is handed back."""
        drained = asyncio.gather(*(consumer.drain(self._config.grace_s) for consumer in self._consumers))
        await asyncio.sleep(0)  # the pulls are withdrawn before anybody is told that nothing new is taken
        await self._lease.tell(WorkerState.DRAINING)
        await drained

    def load_counts(self) -> tuple[int, int, int]:
        """Slots, messages that it has, and messages that it has settled."""
        busy = sum(consumer.busy for consumer in self._consumers)
        return self._slots, busy, sum(invoker.served for invoker in self._invokers)

    @property
    def unique_nbytes(self) -> int:
        """Memory that only this worker holds, as last told; 0: not known."""
        return self._lease.unique_nbytes or 0

    async def _by_need(self) -> list[FunctionSpec]:
        """The functions, those first that somebody waits for: of a group that was cold that is why it is started."""
        backlogs = await asyncio.gather(*(self._bus.backlog(spec.name) for spec in self._specs))
        waiting = {
            spec.name: sum(pending for pending, _ in backlog.values())
            for spec, backlog in zip(self._specs, backlogs, strict=True)
        }
        return sorted(self._specs, key=lambda spec: -waiting[spec.name])

    async def _ensure(self, functions: set[str]) -> None:
        """Make the streams of functions exist, unless another worker has done that since the bus was made.

        A hundred calls of the JetStream API for one that reads: what it reads is on the same disk as the streams.
        """
        config, bucket = self._config.nats, await self._bus.bucket("plans")
        key = "ensured-" + digest_of([sorted(functions), config.ack_wait_s, config.replicas])[:40]
        if await bucket.get(key) is None:
            await asyncio.gather(*(self._bus.ensure_function(name) for name in functions))
            await bucket.put(key, b"")

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        self.timings_s[phase] = time.monotonic() - started_s

    async def _open_services(self) -> Services:
        config, bus, stack = self._config, self._bus, self._stack
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
            worker=self._worker,
            executor=executor,
            guard=Guard(self._watch, Suspects(await bus.bucket("suspects")), self._on_stuck),
        )

    def _models(self, repository: Repository, announcer: Announcer) -> WorkerModels:
        check_pinned(self._config.pinned, {spec.name for spec in registry}, repository)
        budget = self._config.model_memory_nbytes
        residency = Residency(
            {} if budget is None else {"cpu": budget},
            ledger=MemoryLedger(repository.root / MEMORY),
            patience_s=_PATIENCE_S,
        )
        self._stack.callback(residency.close)

        async def announce(manifest: ModelManifest) -> None:
            try:
                await announcer.tell()
            except ModelCorruptError as error:  # of any model that is installed, this one is fine
                log.error("models are not announced: %s", error)

        return WorkerModels(repository, residency, announce, self._config.pinned)

    async def _set_up(self, spec: FunctionSpec, models: WorkerModels) -> FunctionModel:
        try:
            return await models.add(spec)
        except Exception as error:
            reason = error.message if isinstance(error, OmnibusError) else f"{type(error).__name__}: {error}"
            raise WorkerStartError(f"worker {self._worker}: function {spec.name!r} did not start: {reason}") from error

    async def _clean(self) -> None:
        """Remove old objects now and then; one group is enough for it."""
        mine = any(invoker.spec.name == _CLEANING_FUNCTION for invoker in self._invokers)
        while mine and self._config.keep_objects_s:
            try:
                removed = await expire(self._services.store, self._config.keep_objects_s)
            except OmnibusError as error:
                log.warning("old objects were not removed: %s", error)
            else:
                log.info("%d old objects removed", removed)
            await asyncio.sleep(_CLEAN_EVERY_S)

    def _cached(self) -> dict[str, int]:
        return {} if self._encoder_cache is None else self._encoder_cache.statistics


def _specs(config: WorkerConfig) -> list[FunctionSpec]:
    groups = config.groups
    specs = [spec for spec in load_functions(config.modules) if not groups or spec.group in groups]
    unknown = set(groups) - {spec.group for spec in specs}
    if unknown or not specs:
        known = ", ".join(sorted({spec.group for spec in registry}))
        raise WorkerStartError(f"no function is in group {', '.join(sorted(unknown))!r}; groups: {known}")
    return specs
