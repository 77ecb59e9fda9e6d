"""The function behind `fn.pipeline.start.<lane>`: any client on the bus can start any pipeline."""

from __future__ import annotations

import logging
import time

from bus.contracts import Event, Request, ResultStatus
from bus.contracts.codec import decode
from bus.errors import ContractError, FunctionError, OmnibusError
from bus.ports import Delivery, Settlement
from functions.flow.catalog import Pipelines
from functions.flow.router import Router

log = logging.getLogger("omnibus.start")

SLOTS = 16
"""Requests that one process starts at once."""


class Starter:
    """Turns a `Request` into the first events of its pipeline."""

    def __init__(self, router: Router, pipelines: Pipelines) -> None:
        self._router = router
        self._pipelines = pipelines

    async def __call__(self, delivery: Delivery, settlement: Settlement) -> None:
        """Start the request of one delivery; a request that cannot be started gets a failed result."""
        try:
            request = decode(Request, delivery.data)
        except ContractError as error:
            log.warning("a message on %s is no request and nobody can be told: %s", delivery.subject, error)
            await settlement.term()
            return
        try:
            await self._start(request, delivery.queued_s)
        except OmnibusError as error:
            log.warning("request %s was not started: %s", request.request, error)
            await (settlement.nak(1.0) if error.retryable else settlement.term())
        else:
            await settlement.ack()

    async def _start(self, request: Request, created_s: float) -> None:
        try:
            plan = self._pipelines.get(request.pipeline)
            await self._router.start(plan, request, created_s=created_s)
        except Exception as error:
            failure = error if isinstance(error, OmnibusError) else _defect(request, error)
            if failure.retryable:
                raise
            event = Event(
                request=request.request,
                stage="start",
                function="pipeline.start",
                pipeline=request.pipeline,
                created_s=time.time(),
                reply_format=request.reply_format,
            )
            await self._router.fail(event, failure, ResultStatus.FAILED)


def _defect(request: Request, error: Exception) -> OmnibusError:
    log.error("request %s was not started", request.request, exc_info=error)
    return FunctionError(f"pipeline {request.pipeline!r} was not started: {type(error).__name__}: {error}")
