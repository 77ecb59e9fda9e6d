"""One delivery of one event: decode, check, run, route, settle. The only place that decides ack, nak or term."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from bus import subjects
from bus.contracts import CacheState, Contract, Event, ResultStatus, TokenChunk
from bus.contracts.codec import decode, encode, encode_json, validate
from bus.contracts.event import ReplyFormat
from bus.errors import (
    CancelledRequestError,
    ContractError,
    DeadlineExceededError,
    DeliveryExhaustedError,
    HandlerError,
    InvalidInputError,
    OmnibusError,
    OverloadedError,
)
from bus.ports import Bus, Delivery, ObjectStore, Settlement, TensorPlane
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.context import Context
from functions.dead_letters import DeadLetters
from functions.encoder_cache import EncoderCache
from functions.flow.catalog import PlanCache
from functions.flow.router import Router
from functions.guard import Guard
from functions.model import FunctionModel
from functions.run import Run
from functions.signals import Reject, Retry, Skip
from functions.spec import FunctionSpec

log = logging.getLogger("omnibus.invoker")

_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0
_PATIENCE_S = 2.0
"""How long after its function's time-out a run's threads may go on before they count as hung."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """What every run of every function of a worker shares."""

    bus: Bus
    store: ObjectStore
    tensors: TensorPlane
    router: Router
    plans: PlanCache
    cache: StageCache
    encoder_cache: EncoderCache
    cancellations: Cancellations
    worker: str
    executor: Executor | None = None
    guard: Guard = field(default_factory=Guard)


class Invoker:
    """Runs one function for the deliveries that its consumer brings."""

    def __init__(self, spec: FunctionSpec, model: FunctionModel, services: Services) -> None:
        """A function that is ready to run.

        Args:
            spec: Of the function.
            model: Where its runs get what its `setup` returned.
            services: What it shares with the worker's other functions.
        """
        self.spec = spec
        self.served = 0
        self.model = model
        self._services = services
        self._letters = DeadLetters(services.bus, spec.name, services.worker)

    async def __call__(self, delivery: Delivery, settlement: Settlement) -> None:
        """Take one delivery to its settlement; never raises for anything that a message can cause."""
        started_s = time.time()
        try:
            event = decode(Event, delivery.data)
        except ContractError as error:
            log.error("%s: a message that is no event: %s", self.spec.name, error)
            await self._bury_raw(delivery, error, settlement)
            return
        case = self._services.guard.open(event, delivery.attempt, delivery.subject)
        run = Run(event, delivery, started_s, case)
        try:
            await self._handle(run, settlement)
        except _HungError:
            await self._hand_over(run, settlement)
        except OmnibusError as error:
            await self._on_error(run, error, settlement)
        except Exception as error:
            log.exception("%s: request %s: the handler failed", self.spec.name, event.request)
            await self._on_error(run, self._translated(error), settlement)
        finally:
            self._services.guard.close(run.case)
            self.served += 1

    async def warm_up(self) -> None:
        """Run the model once on shapes that its runs will meet, where the function says how.

        Raises:
            OmnibusError: There is no model, or it does not run.
        """
        if self.spec.warm_up is not None:
            async with self.model.hold() as held:
                await self.spec.warm_up(held.model)

    async def _handle(self, run: Run, settlement: Settlement) -> None:
        await self._services.guard.examine(run.case, self.spec.name)
        if run.case.tries > self.spec.max_attempts:
            raise DeliveryExhaustedError(
                f"{self.spec.name}: delivered {run.delivery.attempt} times without an answer: "
                "its workers died or were cut off",
                attempts=run.delivery.attempt,
            )
        context = self._context(run)
        context.check()
        try:
            outputs: dict[str, Any] | None = await self._outputs(run, context)
            status = "ok"
        except Skip as signal:
            outputs, status = None, "skipped"
            context.note(reason=signal.reason)
        except Retry as signal:
            if run.case.tries >= self.spec.max_attempts:
                raise DeliveryExhaustedError(
                    f"{self.spec.name}: asked to be tried again {run.delivery.attempt} times, at last: {signal.reason}",
                    attempts=run.delivery.attempt,
                ) from signal
            await self._retry(run, settlement, signal.delay_s, signal.reason)
            return
        except Reject as signal:
            raise HandlerError(f"{self.spec.name} rejected the message: {signal.reason}") from signal
        # Before what follows is published, so that whoever sees the result finds the whole trace.
        await self._trace(run, status, context.notes)
        await self._advance(context, outputs)
        await settlement.ack()

    async def _advance(self, context: Context[Any], outputs: dict[str, Any] | None) -> None:
        event = context.event
        if not event.plan:
            return
        plan = await self._services.plans.get(event.plan)
        while True:
            try:
                await self._services.router.advance(plan, event, outputs)
                return
            except InvalidInputError as error:
                raise HandlerError(f"{self.spec.name}: its outputs are not plain values: {error.message}") from error
            except OverloadedError as error:
                # The next stage has no room. What is done is not done again: this slot waits, and so takes nothing new.
                await asyncio.sleep(error.retry_after_s or _FIRST_DELAY_S)
                context.check()

    async def _outputs(self, run: Run, context: Context[Any]) -> dict[str, Any]:
        inputs = validate(self.spec.inputs, run.event.inputs)
        cache, spec = self._services.cache, self.spec
        chosen = spec.choice.of(inputs) if spec.choice else None
        if spec.cacheable:
            known = await cache.get(cache.key(spec, inputs, await self.model.refs(chosen)))
            if known is not None:
                run.cache = CacheState.HIT
                return known
            run.cache = CacheState.MISS
        made_for = spec.made_for(inputs) if spec.made_for else None
        async with self._services.guard.running(run.case), self.model.hold(made_for, chosen) as held:
            context.model = held.model
            outputs = await self._run(inputs, context)
        if spec.cacheable:  # under the version that ran, which may be newer than the one that was asked about
            await cache.put(cache.key(spec, inputs, held.refs), outputs)
        return outputs

    async def _run(self, inputs: Contract, context: Context[Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self.spec.timeout_s) as limit:
                outputs = await self.spec.handler(context, inputs)
        except TimeoutError as error:
            if not limit.expired():
                raise  # one of the handler's own
            if not await context.ends(_PATIENCE_S):
                raise _HungError from error
            self._services.guard.ended(self.spec.name, in_time=False)
            raise DeadlineExceededError(f"{self.spec.name} ran longer than its {self.spec.timeout_s:g} s") from error
        self._services.guard.ended(self.spec.name, in_time=True)
        return outputs.model_dump()

    def _translated(self, error: Exception) -> OmnibusError:
        """What is told of an exception that is none of ours."""
        told: OmnibusError = HandlerError(f"{self.spec.name}: {type(error).__name__}: {error}")
        if isinstance(error, MemoryError):  # there may be room on another worker, or here when other runs have ended
            why = f" ({error})" if str(error) else ""
            told = OverloadedError(
                f"{self.spec.name}: its worker has no memory left{why}; send less, or give workers more memory"
            )
        told.__cause__ = error
        return told

    async def _hand_over(self, run: Run, settlement: Settlement) -> None:
        """A thread of the handler does not end: another worker gets the message, unless one hung over it before."""
        log.error("%s: request %s hangs in native code; this worker is replaced", self.spec.name, run.event.request)
        try:
            await self._services.guard.stuck(run.case, self.spec.name)
        except DeliveryExhaustedError as error:
            await self._on_error(run, error, settlement)
        else:
            await self._retry(run, settlement, _FIRST_DELAY_S, "its worker hangs")

    def _context(self, run: Run) -> Context[Any]:
        services, event = self._services, run.event
        return Context(
            event=event,
            model=None,  # until it runs
            store=services.store,
            tensors=services.tensors,
            encoder_cache=services.encoder_cache,
            attempt=run.delivery.attempt,
            emit_chunk=self._emit if event.reply_format is ReplyFormat.MSGPACK else self._emit_json,
            executor=services.executor,
            is_cancelled=lambda: event.request in services.cancellations,
        )

    async def _emit(self, chunk: TokenChunk) -> None:
        await self._services.bus.broadcast(subjects.token(chunk.request), encode(chunk))

    async def _emit_json(self, chunk: TokenChunk) -> None:
        await self._services.bus.broadcast(subjects.token(chunk.request), encode_json(chunk))

    async def _on_error(self, run: Run, error: OmnibusError, settlement: Settlement) -> None:
        try:
            if error.retryable and run.case.tries < self.spec.max_attempts:
                await self._retry(run, settlement, error.retry_after_s, f"{error.code}: {error.message}")
            elif run.ends_with(error):
                await self._give_up(run, error)
                await settlement.ack()
            else:
                await self._bury(run, error)
                await settlement.term()
        except Exception as failure:
            # The bus itself fails: without a settlement the message comes again after the ack wait.
            log.warning("%s: request %s: not settled: %s", self.spec.name, run.event.request, failure)

    async def _retry(self, run: Run, settlement: Settlement, delay_s: float | None, reason: str) -> None:
        if delay_s is None:
            delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (run.case.tries - 1))
            delay_s *= random.uniform(0.5, 1.5)
        log.info("%s: request %s again in %.2f s: %s", self.spec.name, run.event.request, delay_s, reason)
        await settlement.nak(delay_s)
        await self._trace(run, "retry", {"reason": reason, "delay_s": delay_s})

    async def _give_up(self, run: Run, error: OmnibusError) -> None:
        cancelled = isinstance(error, CancelledRequestError)
        status = ResultStatus.CANCELLED if cancelled else ResultStatus.FAILED
        if self._services.cancellations.has_failed(run.event.request):
            # A replay of the stage that failed needs this one, too.
            await self._letters.write(run.event, run.delivery, error)
        await self._services.router.fail(run.event, error, status)
        await self._trace(run, error.code, {"wasted_s": time.time() - run.started_s})

    async def _bury(self, run: Run, error: OmnibusError) -> None:
        event = run.event
        await self._letters.write(event, run.delivery, error)
        await self._services.router.fail(event, error)
        await self._services.cancellations.fail(event.request, event.stage)
        await self._trace(run, error.code, {"message": error.message})

    async def _bury_raw(self, delivery: Delivery, error: OmnibusError, settlement: Settlement) -> None:
        try:
            await self._letters.write_raw(delivery, error)
            await settlement.term()
        except OmnibusError as failure:
            log.warning("%s: a message that is no event was not settled: %s", self.spec.name, failure)

    async def _trace(self, run: Run, status: str, notes: dict[str, Any]) -> None:
        try:
            span = run.span(self.spec.name, self._services.worker, status, notes)
            await self._services.bus.broadcast(subjects.trace(run.event.request), encode(span))
        except OmnibusError as error:
            # What happened has happened: a span that is lost must not change how the request ends.
            log.warning("%s: request %s: no trace: %s", self.spec.name, run.event.request, error)


class _HungError(Exception):
    """A thread of a handler did not end when the handler was told to."""
