"""What a worker has, from the coldest to the warmest: a bus and stores; models and consumers; models that have run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bus.contracts import ModelManifest, Tier, WorkerState
from bus.errors import ModelCorruptError, OmnibusError, WorkerStartError
from bus.nats.bus import NatsBus
from bus.opened import Opened
from bus.ports import Consumer, KeyValue
from bus.store.once import expire
from bus.subjects import START_FUNCTION
from functions.flow.catalog import BUILT_IN, Pipelines
from functions.flow.start import SLOTS, Starter
from functions.invoker import Services
from functions.leases import read_leases
from functions.registry import load_functions, registry
from functions.spec import FunctionSpec
from functions.watch import RunWatch
from runtime.repository import Repository
from runtime.repository.location import MEMORY
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency
from warmpool.announcing import Announcer
from warmpool.config import WorkerConfig
from warmpool.function_set import FunctionSet
from warmpool.lease import LeaseKeeper
from warmpool.models import WorkerModels, check_pinned
from warmpool.services import open_services
from warmpool.streams import make_streams

log = logging.getLogger("omnibus.worker")

_CLEANING_FUNCTION = "media.fetch"
_CLEAN_EVERY_S = 3600.0
_PATIENCE_S = 10.0
"""How long a model's load waits for the runs of those that it takes the memory of."""


class Serving(Opened):
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
        super().__init__()
        self.timings_s: dict[str, float] = {}
        self._watch, self._on_stuck = watch, on_stuck
        self._config, self._worker = config, worker
        self._specs: list[FunctionSpec] = []
        self._starting: Consumer | None = None
        self._functions: FunctionSet | None = None
        self._models: WorkerModels
        self._bus: NatsBus
        self._registry: KeyValue
        self._lease: LeaseKeeper
        self._services: Services

    async def _open(self) -> None:
        """Connect, and tell the registry that there is a worker.

        Raises:
            WorkerStartError: No function to serve.
            BusUnavailableError: (retryable) no bus.
        """
        config = self._config
        self._specs = _specs(config)
        with self._timed("bus"):
            self._bus = await self._stack.enter_async_context(NatsBus(config.nats))
            await self._bus.setup()
        with self._timed("services"):
            group = "-".join(config.groups) or "all"
            self._registry = await self._bus.bucket("workers")
            self._services = await self._stack.enter_async_context(
                open_services(config, self._bus, self._worker, self._watch, self._on_stuck)
            )
            self._lease = LeaseKeeper(self._registry, self._worker, group, self._look)
            await self._lease.open()
            self._stack.push_async_callback(self._lease.close)

    async def load(self) -> None:
        """Load the models of every function, and take messages from then on.

        Raises:
            WorkerStartError: No function has a model that loads.
            BusUnavailableError: (retryable) no bus.
        """
        with self._timed("streams"):
            pipelines = Pipelines.load(registry, (BUILT_IN, *self._config.pipelines))
            await make_streams(self._bus, self._config.nats, pipelines, registry)
        self._starting = await self._bus.serve(START_FUNCTION, SLOTS, Starter(self._services.router, pipelines))
        repository = Repository(self._config.models)
        announcer = Announcer(await self._bus.bucket("models"), repository, self._specs)
        self._models = self._open_models(repository, announcer)
        self._functions = FunctionSet(
            self._specs,
            self._bus,
            self._services,
            self._models,
            elsewhere=self._served_elsewhere,
            on_change=self._lease.renew,
            timings_s=self.timings_s,
            on_demand=self._config.on_demand,
        )
        try:
            await self._functions.load()
        except WorkerStartError as error:
            raise WorkerStartError(f"worker {self._worker}: {error.message}") from error.__cause__
        try:
            await announcer.tell()
        except ModelCorruptError as error:  # of any model that is installed; those of its functions are fine
            log.error("models are not announced: %s", error)
        for working in (self._models.watch(), self._functions.mend(), announcer.watch(), self._clean()):
            self._stack.callback(asyncio.get_running_loop().create_task(working, name="omnibus-models").cancel)
        names = {name for spec in self._specs for name in spec.models}
        await self._lease.tell(WorkerState.READY, models=tuple(sorted(names)), tier=Tier.LOADED)

    async def warm_up(self) -> None:
        """Run the models once, so that the first message is as fast as the next ones."""
        for one in [] if self._functions is None else self._functions.functions:
            if not one.ready:
                continue
            with self._timed(f"{one.spec.name} run"):
                try:
                    await one.invoker.warm_up()
                except OmnibusError as error:  # no reason not to serve
                    log.warning("%s was not warmed up: %s", one.spec.name, error.message)
        await self._lease.tell(WorkerState.READY, tier=Tier.HOT)

    async def stop_pulling(self) -> None:
        """Take nothing new; what runs goes on."""
        self._leave()
        await asyncio.gather(*(consumer.stop_pulling() for consumer in self._consumers()))

    async def drain(self) -> None:
        """Take nothing new, and wait for what runs; what is not done within the grace period is handed back."""
        self._leave()
        drained = asyncio.gather(*(consumer.drain(self._config.grace_s) for consumer in self._consumers()))
        await asyncio.sleep(0)  # the pulls are withdrawn before anybody is told that nothing new is taken
        await self._lease.tell(WorkerState.DRAINING)
        await drained

    def _leave(self) -> None:
        if self._functions is not None:
            self._functions.leave()

    def load_counts(self) -> tuple[int, int]:
        """Messages that it has, and messages that it has settled."""
        busy = sum(consumer.busy for consumer in self._consumers())
        functions = [] if self._functions is None else self._functions.functions
        return busy, sum(one.invoker.served for one in functions)

    @property
    def unique_nbytes(self) -> int:
        """Memory that only this worker holds, as last told; 0: not known."""
        return self._lease.unique_nbytes or 0

    def _consumers(self) -> list[Consumer]:
        starting = [] if self._starting is None else [self._starting]
        return starting if self._functions is None else [*starting, *self._functions.consumers]

    def _look(self) -> dict[str, Any]:
        """What the lease says of it now."""
        busy, served = self.load_counts()
        found = {"busy": busy, "served": served, "encoder_cache": self._services.encoder_cache.statistics}
        if self._functions is None:
            return found
        status = self._functions.status
        return {
            **found,
            "functions": self._functions.ready,
            "slots": sum(status[name].slots for name in self._functions.ready),
            "status": status,
            "resident": self._models.resident,
        }

    async def _served_elsewhere(self) -> set[str]:
        """Functions that other workers serve."""
        others = [lease for lease in await read_leases(self._registry) if lease.worker != self._worker]
        return {name for lease in others if lease.state is WorkerState.READY for name in lease.functions}

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        self.timings_s[phase] = time.monotonic() - started_s

    def _open_models(self, repository: Repository, announcer: Announcer) -> WorkerModels:
        check_pinned(self._config.pinned, {spec.name for spec in registry}, repository)
        budget = self._config.model_memory_nbytes
        residency = Residency(
            {} if budget is None else {"cpu": budget},
            ledger=MemoryLedger(repository.root / MEMORY),
            patience_s=_PATIENCE_S,
        )
        self._stack.callback(residency.close)

        async def announce(manifest: ModelManifest) -> None:
            announcer.soon()

        return WorkerModels(repository, residency, announce, self._config.pinned)

    async def _clean(self) -> None:
        """Remove old objects now and then; one group is enough for it."""
        mine = any(spec.name == _CLEANING_FUNCTION for spec in self._specs)
        while mine and self._config.keep_objects_s:
            try:
                removed = await expire(self._services.store, self._config.keep_objects_s)
            except OmnibusError as error:
                log.warning("old objects were not removed: %s", error)
            else:
                log.info("%d old objects removed", removed)
            await asyncio.sleep(_CLEAN_EVERY_S)


def _specs(config: WorkerConfig) -> list[FunctionSpec]:
    groups = config.groups
    specs = [spec for spec in load_functions(config.modules) if not groups or spec.group in groups]
    unknown = set(groups) - {spec.group for spec in specs}
    if unknown or not specs:
        known = ", ".join(sorted({spec.group for spec in registry}))
        raise WorkerStartError(f"no function is in group {', '.join(sorted(unknown))!r}; groups: {known}")
    return specs
