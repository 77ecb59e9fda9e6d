"""Requests that nobody waits for: start now, ask later."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from bus.contracts import Result
from bus.errors import ConflictError, UnknownRequestError, error_from_code
from functions.flow.router import check_inputs
from functions.gateway.errors import error_body
from functions.gateway.services import GatewayServices, services_of

router = APIRouter(tags=["requests"])


async def accept(
    services: GatewayServices, request_id: str, pipeline: str, inputs: dict[str, Any], fields: dict[str, Any]
) -> Response:
    """Start a pipeline durably; 202 with its status and, in `Location`, where to ask again.

    Raises:
        UnknownPipelineError: No such pipeline.
        InvalidInputError: Inputs that are not the pipeline's.
    """
    check_inputs(services.client.pipelines.get(pipeline), inputs)
    job = {"pipeline": pipeline, "created_s": time.time()}
    requests = await services.bus.bucket("requests")
    # Told before it is started, so that whoever asks never hears that an accepted request is unknown.
    with contextlib.suppress(ConflictError):  # the same idempotency key
        await requests.create(request_id, json.dumps(job).encode())
    body = await describe(services, request_id)
    # The bus knows a message twice for two minutes; a request that was seen to run is not started later either.
    if body["status"] == "queued":
        await services.client.enqueue(pipeline, inputs, request=request_id, **fields)
    location = f"/v1/requests/{request_id}"
    headers = {"location": location, "preference-applied": "respond-async"}
    return Response(to_json(body), 202, headers, media_type="application/json")


async def describe(services: GatewayServices, request_id: str) -> dict[str, Any]:
    """What is known of a request: queued, running, succeeded, failed or cancelled, with outputs or error.

    Raises:
        UnknownRequestError: Nothing is known of it.
    """
    result = await services.client.result(request_id)
    if result is not None:
        return _finished(result)
    entry = await (await services.bus.bucket("requests")).get(request_id)
    begun = bool(await services.bus.history(f"trace.{request_id}", limit=1))
    cancelled = await (await services.bus.bucket("cancels")).get(request_id) is not None
    if entry is None and not begun and not cancelled:
        raise UnknownRequestError(
            f"no request {request_id!r} is known; requests are kept for 24 hours", request=request_id
        )
    job = {} if entry is None else json.loads(entry[0])
    status = "cancelled" if cancelled else "running" if begun else "queued"
    return {"id": request_id, "object": "request", "status": status, **job}


@router.get("/v1/requests/{request_id}")
async def read(request_id: str, request: Request) -> Response:
    """Status of a request and, once it ended, its outputs or its error."""
    body = await describe(services_of(request), request_id)
    return Response(to_json(body, bytes_mode="base64"), media_type="application/json")


@router.delete("/v1/requests/{request_id}")
async def cancel(request_id: str, request: Request) -> Response:
    """Cancel a request wherever it is; one that has ended stays as it is."""
    services = services_of(request)
    body = await describe(services, request_id)
    if body["status"] in ("queued", "running"):
        await services.client.cancel(request_id, "cancelled by its client")
        body["status"] = "cancelled"
    return Response(to_json(body, bytes_mode="base64"), media_type="application/json")


@router.get("/v1/requests/{request_id}/trace")
async def trace(request_id: str, request: Request) -> Response:
    """The spans of a request: every run of every stage, with when it was queued, began and ended."""
    spans = await services_of(request).client.trace(request_id)
    body = {"id": request_id, "object": "trace", "spans": [span.model_dump(mode="json") for span in spans]}
    return Response(to_json(body), media_type="application/json")


def _finished(result: Result) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": result.request,
        "object": "request",
        "status": result.status.value,
        "pipeline": result.pipeline,
        "created_s": result.created_s,
        "finished_s": result.finished_s,
    }
    if result.error is None:
        return {**body, "outputs": result.outputs}
    record = result.error
    error = error_from_code(record.code, record.message, retryable=record.retryable, stage=record.stage)
    return {**body, **error_body(error, result.request)}
