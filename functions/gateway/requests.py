"""Pipeline requests on behalf of HTTP requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from bus.contracts import Lane
from bus.contracts.codec import digest
from bus.errors import CancelledRequestError, InvalidInputError
from functions.gateway.errors import request_id_of
from functions.gateway.services import config_of, services_of
from functions.running import Running

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_LABEL_LENGTH = 1024


def submit(request: Request, pipeline: str, inputs: dict[str, Any], *, streams: bool = True) -> Running:
    """The pipeline request that answers an HTTP request; it starts when the context is entered.

    Its id is the HTTP request's, so `x-request-id` finds its trace.

    Raises:
        UnknownPipelineError: No such pipeline.
        InvalidInputError: A header outside its contract.
    """
    client = services_of(request).client
    return client.submit(pipeline, inputs, request=request_id_of(request), streams=streams, **_fields(request))


@asynccontextmanager
async def run(request: Request, pipeline: str, inputs: dict[str, Any]) -> AsyncIterator[Running]:
    """A started pipeline request that is cancelled when the client goes away.

    Raises:
        CancelledRequestError: The client went away; nobody will read an answer.
        OmnibusError: What `submit` raises.
    """
    async with while_connected(request), submit(request, pipeline, inputs, streams=False) as running:
        yield running


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel what runs inside when the client closes its connection; the body has been read before.

    Raises:
        CancelledRequestError: The client did.
    """
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise CancelledRequestError(f"the client of request {request_id_of(request)} went away") from None
    finally:
        watcher.cancel()


def wants_async(request: Request) -> bool:
    """Whether the client prefers not to wait.

    Source: RFC 7240, section 4.1, `respond-async`.
    """
    preferences = ",".join(request.headers.getlist("prefer")).lower().split(",")
    return any(part.split(";")[0].strip() == "respond-async" for part in preferences)


async def enqueue(request: Request, pipeline: str, inputs: dict[str, Any]) -> Response:
    """Start a pipeline durably and answer 202 with where to ask for the result.

    With an `Idempotency-Key` the same key is the same request, however often it is sent.
    """
    from functions.gateway.jobs import accept

    key = request.headers.get("idempotency-key")
    request_id = request_id_of(request) if key is None else digest(f"{pipeline}/{key}".encode())[:40]
    fields = {"timeout_s": None, "lane": Lane.STANDARD, **_fields(request, default=False)}
    return await accept(services_of(request), request_id, pipeline, inputs, fields)


def _fields(request: Request, *, default: bool = True) -> dict[str, Any]:
    """What the headers say of a request: deadline, lane, trace and labels."""
    headers = request.headers
    fields: dict[str, Any] = {"labels": {}}
    if default:
        fields["timeout_s"] = config_of(request).timeout_s
    if (timeout := headers.get("x-omnibus-timeout-s")) is not None:
        fields["timeout_s"] = _timeout_s(timeout, config_of(request).max_timeout_s)
    if (lane := headers.get("x-omnibus-lane")) is not None:
        fields["lane"] = _lane(lane)
    if (context := headers.get("x-mm-context")) is not None:
        fields["labels"] = {"x-mm-context": context[:_MAX_LABEL_LENGTH]}
    # A traceparent that is none is ignored, as W3C Trace Context, section 3.2.2.3, says.
    if (parent := headers.get("traceparent")) is not None and _TRACEPARENT.fullmatch(parent):
        fields["traceparent"] = parent
    return fields


def _timeout_s(text: str, limit_s: float) -> float:
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = float("nan")
    if not 0 < timeout_s <= limit_s:
        raise InvalidInputError(
            f"x-omnibus-timeout-s is a number of seconds up to {limit_s:g}, not {text!r}", param="x-omnibus-timeout-s"
        )
    return timeout_s


def _lane(text: str) -> Lane:
    try:
        return Lane(text)
    except ValueError:
        raise InvalidInputError(
            f"x-omnibus-lane is one of {', '.join(Lane)}, not {text!r}", param="x-omnibus-lane"
        ) from None
