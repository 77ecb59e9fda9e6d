"""The function behind `fn.pipeline.start.<lane>`: any client on the bus can start any pipeline."""

from __future__ import annotations

import logging
import time

from bus.contracts import Event, Request, ResultStatus
from bus.contracts.codec import decode
from bus.errors import ContractError, OmnibusError
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
            await settlement.nak(1.0)
        else:
            await settlement.ack()

    async def _start(self, request: Request, created_s: float) -> None:
        try:
            plan = self._pipelines.get(request.pipeline)
            await self._router.start(plan, request, created_s=created_s)
        except OmnibusError as error:
            if error.retryable:
                raise
            event = Event(
                request=request.request,
                stage="start",
                function="pipeline.start",
                pipeline=request.pipeline,
                created_s=time.time(),
                reply_format=request.reply_format,
            )
            await self._router.fail(event, error, ResultStatus.FAILED)
