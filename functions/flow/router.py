"""Choreography: whoever finishes a stage publishes what comes next. There is no orchestrator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bus import subjects
from bus.contracts import Event, ReplyFormat, Request, Result, ResultStatus
from bus.contracts.codec import JSON_TYPE, MSGPACK_TYPE, encode, encode_json
from bus.errors import InvalidInputError, OmnibusError
from bus.headers import event_headers
from bus.ports import Bus
from functions.flow.join import Joins
from functions.flow.plan import END, REQUEST, Plan, PlanStage, is_absent, resolve
from functions.flow.reach import Reach
from functions.flow.record import error_record


class Router:
    """Starts plans and takes them from stage to stage."""

    def __init__(self, bus: Bus, joins: Joins) -> None:
        self._bus = bus
        self._joins = joins
        self._reach = Reach()

    async def start(self, plan: Plan, request: Request, *, created_s: float | None = None) -> None:
        """Publish the first stages of a request. Doing it twice runs it once.

        Raises:
            InvalidInputError: A required input is missing, or one that the pipeline does not have.
        """
        check_inputs(plan, request.inputs)
        values = {f"{REQUEST}.{name}": value for name, value in request.inputs.items()}
        seed = Event(
            request=request.request,
            stage=REQUEST,
            function="",
            pipeline=plan.pipeline,
            plan=plan.digest,
            tenant=request.tenant,
            lane=request.lane,
            created_s=time.time() if created_s is None else created_s,
            deadline_s=request.deadline_s,
            labels=request.labels,
            traceparent=request.traceparent,
            reply_format=request.reply_format,
        )
        await self._go(plan, seed, {name: set() for name in plan.roots}, values)

    async def advance(self, plan: Plan, event: Event, outputs: dict[str, Any] | None) -> None:
        """A stage is done (None: it was skipped): publish whatever can run now."""
        values = dict(event.carry)
        for name, value in (outputs or {}).items():
            if not is_absent(value):
                values[f"{event.stage}.{name}"] = value
        arrivals = {name: {event.stage} for name in plan.by_name[event.stage].downstream}
        await self._go(plan, event, arrivals, values)

    async def fail(self, event: Event, error: OmnibusError, status: ResultStatus = ResultStatus.FAILED) -> None:
        """A stage failed for good: tell the client."""
        record = error_record(error, event.stage)
        await self._finish(event, Result(**_outcome(event), status=status, error=record))

    async def _go(self, plan: Plan, event: Event, arrivals: dict[str, set[str]], values: dict[str, Any]) -> None:
        # Made last: what a join that fails leaves behind would never be awaited.
        publications: list[Callable[[], Awaitable[None]]] = []
        joins = []
        for stage in plan.stages:  # in topological order, so that skips travel all the way in one pass
            if stage.name not in arrivals:
                continue
            known = values
            if not set(stage.upstream) <= arrivals[stage.name]:
                joined = await self._join(event, stage, arrivals[stage.name], values)
                if joined is None:
                    continue
                joins.append(_join_key(event, stage))
                known = {**values, **joined}
                values = known
            inputs = resolve(stage, known)
            if inputs is None:
                for name in stage.downstream:
                    arrivals.setdefault(name, set()).add(stage.name)
            elif stage.name == END:
                result = Result(**_outcome(event), status=ResultStatus.SUCCEEDED, outputs=inputs)
                publications.append(partial(self._finish, event, result))
            else:
                publications.append(partial(self._publish, plan, _next_event(event, stage, inputs, known)))
        if len(publications) == 1:
            await publications[0]()
        else:
            await asyncio.gather(*(publish() for publish in publications))
        for key in joins:
            await self._joins.forget(key)

    async def _join(
        self, event: Event, stage: PlanStage, arrived: set[str], values: dict[str, Any]
    ) -> dict[str, Any] | None:
        needed = {source.ref for source in stage.inputs.values()} | set(stage.live)
        brought = {ref: value for ref, value in values.items() if ref in needed}
        return await self._joins.arrive(_join_key(event, stage), arrived, brought, stage.upstream)

    async def _publish(self, plan: Plan, event: Event) -> None:
        subject = subjects.work(event.function, event.lane)
        carried = [ref for ref, value in event.carry.items() if not is_absent(value)]
        headers = event_headers(event, self._reach.stages(plan, event.stage, carried))
        await self._bus.publish(subject, encode(event), message_id=event.message_id, headers=headers)

    async def _finish(self, event: Event, result: Result) -> None:
        as_json = event.reply_format is ReplyFormat.JSON
        await self._bus.publish(
            subjects.result(event.request),
            encode_json(result) if as_json else encode(result),
            message_id=f"{event.request}.{END}.{event.sequence}",
            headers={"content-type": JSON_TYPE if as_json else MSGPACK_TYPE},
        )


def _join_key(event: Event, stage: PlanStage) -> str:
    return f"{event.request}.{stage.name}"


def check_inputs(plan: Plan, inputs: dict[str, Any]) -> None:
    """Refuse inputs that are not the plan's.

    Raises:
        InvalidInputError: A required input is missing, or one that the pipeline does not have.
    """
    missing = [name for name, required in plan.inputs.items() if required and is_absent(inputs.get(name))]
    unknown = sorted(set(inputs) - set(plan.inputs))
    if missing or unknown:
        problems = [f"{name!r} is missing" for name in missing] + [f"{name!r} is not an input" for name in unknown]
        raise InvalidInputError(
            f"pipeline {plan.pipeline!r}: {'; '.join(problems)}; its inputs are {', '.join(plan.inputs)}",
            missing=missing,
            unknown=unknown,
        )


def _outcome(event: Event) -> dict[str, Any]:
    return {
        "request": event.request,
        "pipeline": event.pipeline,
        "created_s": event.created_s,
        "finished_s": time.time(),
    }


def _next_event(event: Event, stage: PlanStage, inputs: dict[str, Any], values: dict[str, Any]) -> Event:
    return event.model_copy(
        update={
            "stage": stage.name,
            "function": stage.function,
            "inputs": inputs,
            "carry": {ref: values[ref] for ref in stage.live if ref in values},
        }
    )
