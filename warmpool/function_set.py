"""The functions of a worker: each is served as soon as it is ready; one that fails is told of and tried again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress

from bus.contracts import ErrorRecord, FunctionStatus
from bus.errors import OmnibusError, WorkerStartError
from bus.ports import Bus, Consumer, Delivery, Settlement
from functions.invoker import Invoker, Services
from functions.model import FunctionModel, MissingModel
from functions.spec import FunctionSpec
from warmpool.models import WorkerModels

log = logging.getLogger("omnibus.worker")

_AT_ONCE = 2
"""Functions that are set up at once. Models are read under the interpreter's lock, so that more of them are not sooner
ready: it is what a set-up waits for that others use."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 60.0
"""Until one that failed is tried again, though no model was installed or changed."""

_FIRST_RUNS_S = 1.0
"""How long others wait until all that brought the worker to life has run: their set-up takes the processor from it."""

_LOOK_EVERY_S = 1.0


class ServedFunction:
    """One function and what became of it here.

    Attributes:
        invoker: Runs it.
        consumer: Takes its messages; None: nobody does here.
        calm: Set when it has run and has nothing more to do for the first time.
        error: Why it cannot run here; None: it can.
    """

    def __init__(self, spec: FunctionSpec, services: Services) -> None:
        self.spec = spec
        self.error: OmnibusError | None = WorkerStartError(f"function {spec.name!r} is being set up")
        self.invoker = Invoker(spec, MissingModel(self.error), services)
        self.consumer: Consumer | None = None
        self.calm = asyncio.Event()

    async def __call__(self, delivery: Delivery, settlement: Settlement) -> None:
        """Take one delivery to its settlement."""
        await self.invoker(delivery, settlement)
        if self.consumer is None or self.consumer.busy <= 1:  # this one is not settled yet
            self.calm.set()

    @property
    def ready(self) -> bool:
        """Whether it runs here, and takes messages."""
        return self.error is None and self.consumer is not None

    @property
    def status(self) -> FunctionStatus:
        """What the registry is told of it."""
        error = self.error and ErrorRecord(
            code=self.error.code, message=self.error.message, retryable=self.error.retryable
        )
        if self.consumer is None:
            return FunctionStatus(slots=self.spec.slots, error=error)
        busy, full = self.consumer.busy, self.consumer.full
        return FunctionStatus(slots=self.spec.slots, busy=busy, full=full, error=error)

    def has(self, model: FunctionModel) -> None:
        """It can run."""
        self.error, self.invoker.model = None, model

    def lacks(self, error: OmnibusError) -> None:
        """It cannot run: what is asked of it gets the error."""
        self.error, self.invoker.model = error, MissingModel(error)


class FunctionSet:
    """Sets functions up side by side, serves them, and tries those again that failed.

    A function that cannot run here takes messages all the same, where no other worker serves it: what is asked of it is
    answered with the reason, and does not wait for ever.

    Args:
        specs: The functions.
        bus: Where they are asked.
        services: What their runs share.
        models: Where they get their models.
        elsewhere: Tells which functions other workers serve.
        on_change: Called when one is ready, or cannot be.
        timings_s: Gets the seconds that each took, by its name.
        on_demand: Whether it is started when something is asked: then it stays to answer that, if only with the reason.
    """

    def __init__(
        self,
        specs: Sequence[FunctionSpec],
        bus: Bus,
        services: Services,
        models: WorkerModels,
        *,
        elsewhere: Callable[[], Awaitable[set[str]]],
        on_change: Callable[[], Awaitable[None]],
        timings_s: MutableMapping[str, float],
        on_demand: bool = False,
    ) -> None:
        self.functions = [ServedFunction(spec, services) for spec in specs]
        self._bus, self._models, self._timings_s = bus, models, timings_s
        self._elsewhere, self._on_change, self._on_demand = elsewhere, on_change, on_demand
        self._tried: set[ServedFunction] = set()
        self._leaving = False
        self._gate = asyncio.Semaphore(_AT_ONCE)

    @property
    def failed(self) -> list[ServedFunction]:
        """Those that cannot run here."""
        return [one for one in self.functions if one.error is not None]

    @property
    def ready(self) -> tuple[str, ...]:
        """Names of those that run here."""
        return tuple(one.spec.name for one in self.functions if one.ready)

    @property
    def status(self) -> dict[str, FunctionStatus]:
        """What became of each that has been tried."""
        return {one.spec.name: one.status for one in self.functions if one in self._tried}

    @property
    def consumers(self) -> list[Consumer]:
        """Of those that take messages."""
        return [one.consumer for one in self.functions if one.consumer is not None]

    async def load(self) -> None:
        """Set all of them up, those first that somebody waits for; each takes messages as soon as it can.

        Raises:
            WorkerStartError: None of them can run, and it is not started on demand.
            BusUnavailableError: (retryable) no bus.
        """
        asked, others = await self._by_need()
        await self._begin_all(asked)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_RUNS_S):
                await asyncio.gather(*(one.calm.wait() for one in asked if one.ready))
        await self._begin_all(others)
        failed = self.failed
        if len(failed) == len(self.functions) and not self._on_demand:
            raise WorkerStartError(
                "; ".join(f"function {one.spec.name!r} did not start: {_message(one)}" for one in failed)
            ) from failed[0].error
        for one in failed:
            await self._answer(one)

    def leave(self) -> None:
        """Begin to take no function's messages from now on; those that are taken go on until their consumers end."""
        self._leaving = True

    async def mend(self) -> None:
        """Try those again that failed, when models change and now and then, until all of them run."""
        pause_s, tried_s, changes = _FIRST_PAUSE_S, time.monotonic(), 0
        while (failed := self.failed) and not self._leaving:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                if changes != self._models.changes or time.monotonic() - tried_s >= pause_s:
                    pause_s = _FIRST_PAUSE_S if changes != self._models.changes else min(2 * pause_s, _LONGEST_PAUSE_S)
                    changes = self._models.changes
                    await self._begin_all(failed)
                    tried_s = time.monotonic()
                for one in self.failed:
                    await self._answer(one)
            except OmnibusError as error:
                log.warning("functions that cannot run were not looked after: %s", error)

    async def _begin_all(self, functions: Sequence[ServedFunction]) -> None:
        tasks = [asyncio.ensure_future(self._begin(one)) for one in functions]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _begin(self, one: ServedFunction) -> None:
        """Set a function up, and serve it."""
        async with self._gate:
            started_s = time.monotonic()
            known = one.error.message if one.error is not None and one in self._tried else ""
            try:
                one.has(await self._models.add(one.spec))
            except OmnibusError as error:
                one.lacks(error)
            except Exception as error:  # of a deployer's own setup
                log.exception("the setup of %s failed", one.spec.name)
                one.lacks(WorkerStartError(f"{type(error).__name__}: {error}"))
            self._tried.add(one)
            if one.error is None:
                if known:
                    log.info("function %r runs now", one.spec.name)
                self._timings_s[one.spec.name] = time.monotonic() - started_s
                await self._serve(one)
            elif one.error.message != known:
                log.error("function %r cannot run here: %s", one.spec.name, one.error.message)
        await self._on_change()

    async def _answer(self, one: ServedFunction) -> None:
        """Take messages to answer them with the reason, for as long as no other worker can do better."""
        better = one.spec.name in await self._elsewhere()
        if better and one.consumer is not None:
            consumer, one.consumer = one.consumer, None
            await consumer.drain(_LOOK_EVERY_S)
        elif not better:
            await self._serve(one)

    async def _serve(self, one: ServedFunction) -> None:
        if one.consumer is None and not self._leaving:
            one.consumer = await self._bus.serve(one.spec.name, one.spec.slots, one)
            if self._leaving:  # meanwhile
                await one.consumer.stop_pulling()

    async def _by_need(self) -> tuple[list[ServedFunction], list[ServedFunction]]:
        """Those that somebody waits for, which is why a group that was cold is started, and then the others."""
        backlogs = await asyncio.gather(*(self._bus.backlog(one.spec.name) for one in self.functions))
        waiting = {
            one: sum(pending for pending, _ in backlog.values())
            for one, backlog in zip(self.functions, backlogs, strict=True)
        }
        asked = sorted((one for one in self.functions if waiting[one]), key=lambda one: -waiting[one])
        return asked, [one for one in self.functions if not waiting[one]]


def _message(one: ServedFunction) -> str:
    return "" if one.error is None else one.error.message
