"""Errors as clients see them: OpenAI's shape, the HTTP status of the code, the request id."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bus.errors import InvalidInputError, MediaUnsupportedError, OmnibusError
from functions.gateway.invalid_bodies import invalid_body

STATUSES: Mapping[str, int] = {
    "contract_invalid": 400,
    "invalid_input": 400,
    "nothing_to_say": 400,
    "unknown_schema": 400,
    "context_length_exceeded": 400,
    "media_invalid": 400,
    "media_unreadable": 400,
    "media_fetch_failed": 400,
    "pipeline_invalid": 400,
    "model_unsupported": 400,
    "model_too_large": 400,
    "unauthorized": 401,
    "model_not_found": 404,
    "unknown_function": 404,
    "unknown_pipeline": 404,
    "unknown_request": 404,
    "object_missing": 404,
    "conflict": 409,
    "limit_exceeded": 413,
    "media_too_large": 413,
    "payload_too_large": 413,
    "media_unsupported": 415,
    "overloaded": 429,
    "cancelled": 499,
    "model_source_failed": 502,
    "bus_unavailable": 503,
    "store_unavailable": 503,
    "model_corrupt": 503,
    "provider_missing": 503,
    "worker_start_failed": 503,
    "deadline_exceeded": 504,
}
"""HTTP status by error code; any other is 500. 499 is what nginx calls a client that closed the request."""

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_RETRY_AFTER_S = 1.0
_MOST_TEXT = 2_000

_FORM_PATHS = frozenset({"/v1/audio/transcriptions"})
_FORM_TYPES = ("multipart/form-data", "application/x-www-form-urlencoded")
_JSON_TYPE = re.compile(r"application/([\w.-]+\+)?json")


def status_of(error: OmnibusError) -> int:
    """HTTP status of an error."""
    return STATUSES.get(error.code, 500)


def error_body(error: OmnibusError, request_id: str | None) -> dict[str, Any]:
    """The error in OpenAI's shape, with the request id and, where there is one, the stage that failed.

    Source: OpenAI API reference, Error codes.
    """
    status = status_of(error)
    return {
        "error": {
            "message": _shown(error.message),
            "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
            "param": error.details.get("param"),
            "code": error.code,
            "retryable": error.retryable,
            "request_id": request_id,
            "stage": error.details.get("stage"),
        }
    }


def error_response(error: OmnibusError, request_id: str | None) -> Response:
    """The error as a response; 429 and 503 say when to come back."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if status in (429, 503):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s or _RETRY_AFTER_S)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(to_json(error_body(error, request_id)), status, headers, media_type="application/json")


def request_id_of(request: Request) -> str:
    """The id of this request, on the bus and in the `x-request-id` header."""
    request_id: str = request.scope["state"]["request_id"]
    return request_id


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error of a handler in one shape; what none of them raises on purpose is left to the front door."""

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, OmnibusError)
        return error_response(error, request_id_of(request))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_response(_of_other_type(request, error) or invalid_body(error), request_id_of(request))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reason = error.detail if error.__cause__ is None else f"{error.detail} ({error.__cause__})"
        body = error_body(InvalidInputError(f"{request.method} {request.url.path}: {reason}"), None)
        body["error"] |= {"code": f"http_{error.status_code}", "request_id": request_id_of(request)}
        return Response(to_json(body), error.status_code, error.headers, media_type="application/json")

    app.add_exception_handler(OmnibusError, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, _leave_to_front)


async def _leave_to_front(request: Request, error: Exception) -> Response:
    return _NoResponse()


class _NoResponse(Response):
    """Sends nothing: the framework raises the error again after its answer, and the front door answers then."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


def _of_other_type(request: Request, error: RequestValidationError) -> MediaUnsupportedError | None:
    """The error of a body that was not even looked into, for its content type is another than the route reads."""
    if all(problem["loc"][:1] != ("body",) for problem in error.errors()):
        return None
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = request.url.path in _FORM_PATHS
    if sent in _FORM_TYPES if form else _JSON_TYPE.fullmatch(sent):
        return None
    return MediaUnsupportedError(
        f"a body of content type {sent!r} is not read here; "
        f"send {_FORM_TYPES[0] if form else 'application/json'} and say so in the content-type header",
        param="content-type",
    )


def _shown(message: str) -> str:
    """The message as it can be sent and read: what a client sent may be in it, of any length and any characters."""
    message = message.encode(errors="backslashreplace").decode()
    if len(message) <= _MOST_TEXT:
        return message
    # The thing is named in front and the remedy behind; what is long in between is the value.
    half = _MOST_TEXT // 2
    return f"{message[:half]} … {message[-half:]}"
