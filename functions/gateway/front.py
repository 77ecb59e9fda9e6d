"""The front door: request ids, the API key, and limits on what is let in. Plain ASGI, for it is on every path."""

from __future__ import annotations

import hmac
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bus.errors import MediaUnsupportedError, OmnibusError, OverloadedError, PayloadTooLargeError, UnauthorizedError
from functions.client import new_request_id
from functions.gateway.config import GatewayConfig
from functions.gateway.errors import error_response

log = logging.getLogger("omnibus.gateway")

_OPEN_PATHS = frozenset({"/health", "/docs", "/openapi.json"})
_OPEN_PREFIX = "/docs/assets/"


class Front:
    """Gives every request an id and refuses those that must not come in.

    A request without the right key gets 401, one with too large a body 413, and one that this process has no
    room for 429: nothing is queued here, so that memory cannot grow.
    """

    def __init__(self, app: ASGIApp, config: GatewayConfig) -> None:
        """A door before `app`."""
        self._app = app
        self._config = config
        self._key = None if config.api_key is None else f"Bearer {config.api_key}".encode()
        self._requests = 0
        self._buffered_nbytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id
        visit = _Visit(receive, send, request_id, self)
        try:
            self._admit(scope)
        except OmnibusError as error:
            await error_response(error, request_id)(scope, receive, visit.send)
            return
        self._requests += 1
        try:
            await self._app(scope, visit.receive, visit.send)
        except Exception as error:
            await visit.failed(scope, error)
        finally:
            self._requests -= 1
            self._buffered_nbytes -= visit.nbytes

    def count(self, nbytes: int, of_request: int) -> None:
        """Bytes of a body have come.

        Raises:
            PayloadTooLargeError: The request has more than one may have.
            OverloadedError: (retryable) all requests together have more than this process keeps.
        """
        self._buffered_nbytes += nbytes
        self._check_size(of_request)
        if self._buffered_nbytes > self._config.max_buffered_nbytes:
            raise OverloadedError("the bodies being handled are too many bytes; try again", retry_after_s=1.0)

    def _admit(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        path = scope["path"]
        if path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX):
            return
        if self._key is not None and not hmac.compare_digest(headers.get(b"authorization", b""), self._key):
            raise UnauthorizedError("the API key is missing or wrong; send it as `Authorization: Bearer <key>`")
        coding = headers.get(b"content-encoding", b"identity")
        if coding.lower() not in (b"identity", b""):
            raise MediaUnsupportedError(
                f"a body with the content encoding {coding.decode('latin-1')[:40]!r} is not read; send it uncompressed",
                param="content-encoding",
            )
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            self._check_size(int(length))
        if self._requests >= self._config.max_requests:
            raise OverloadedError(f"{self._requests} requests are being handled; try again", retry_after_s=1.0)

    def _check_size(self, nbytes: int) -> None:
        limit = self._config.max_body_nbytes
        if nbytes > limit:
            raise PayloadTooLargeError(
                f"a body of more than {limit} bytes is not taken; send large media by URL", limit=limit
            )


class _Visit:
    """One request, seen from the door."""

    def __init__(self, receive: Receive, send: Send, request_id: str, front: Front) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._front = front
        self._started = False
        self._refused: OmnibusError | None = None
        self.nbytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and (nbytes := len(message.get("body", b""))):
            self.nbytes += nbytes
            try:
                self._front.count(nbytes, self.nbytes)
            except OmnibusError as error:
                # Whatever the handler makes of it, this is the answer: some body parsers call every error a 400.
                self._refused = error
                raise
        return message

    async def send(self, message: Message) -> None:
        if self._refused is not None:
            await self._refuse(self._refused)
            return
        if message["type"] == "http.response.start":
            self._started = True
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._request_id.encode())]
        await self._send(message)

    async def _refuse(self, error: OmnibusError) -> None:
        if not self._started:
            self._refused = None
            await error_response(error, self._request_id)({"type": "http"}, self._receive, self.send)
            self._refused = error

    async def failed(self, scope: Scope, error: Exception) -> None:
        """Answer what no handler caught; the connection of an answer that has begun can only be dropped."""
        if not isinstance(error, OmnibusError):
            log.error("request %s: %s failed", self._request_id, scope["path"], exc_info=error)
            error = OmnibusError(f"the gateway failed; tell its operator the request id {self._request_id}")
        if self._started:
            raise error
        await error_response(error, self._request_id)(scope, self._receive, self.send)
