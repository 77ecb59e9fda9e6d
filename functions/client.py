"""Starting a pipeline and waiting for its answer: what the gateway and the command line stand on."""

from __future__ import annotations

import logging
import secrets
import time
from types import TracebackType
from typing import Any, Self

from bus import subjects
from bus.contracts import Lane, Request, Result, Span
from bus.contracts.codec import decode, encode
from bus.contracts.event import check_request_id
from bus.errors import (
    UnknownRequestError,
)
from bus.headers import request_headers
from bus.ports import Bus
from functions.cancel import Cancellations
from functions.flow.catalog import Pipelines
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.running import Running

log = logging.getLogger("omnibus.client")


def new_request_id() -> str:
    """An id that sorts by time and that nobody else will make."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(8)}"


class PipelineClient:
    """Starts pipelines on a bus. Use as a context manager."""

    def __init__(self, bus: Bus, pipelines: Pipelines) -> None:
        self.bus = bus
        self.pipelines = pipelines

    async def __aenter__(self) -> Self:
        """Announce the pipelines' plans."""
        await self.pipelines.announce(await self.bus.bucket("plans"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open between requests."""

    def submit(
        self,
        pipeline: str,
        inputs: dict[str, Any],
        *,
        request: str | None = None,
        timeout_s: float | None = 300.0,
        lane: Lane = Lane.INTERACTIVE,
        streams: bool = True,
        **fields: Any,
    ) -> Running:
        """A request that starts when the returned context is entered.

        Args:
            pipeline: Name of the pipeline.
            inputs: Its inputs by name, as plain values.
            request: Id; None: a new one.
            timeout_s: Seconds until nobody waits any more.
            lane: Service class.
            streams: Listen to the streamed answer, too; False saves its price where only the result counts.
            **fields: Other fields of `Request`, such as `tenant`, `labels` and `traceparent`.
        """
        return Running(self, self._request(pipeline, inputs, request, timeout_s, lane, fields), self.start, streams)

    def follow(self, request: Request) -> Running:
        """A request that is published, as any client can, when the returned context is entered."""
        return Running(self, request, self.publish_request, streams=True)

    async def enqueue(
        self,
        pipeline: str,
        inputs: dict[str, Any],
        *,
        request: str | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.STANDARD,
        **fields: Any,
    ) -> str:
        """Start a request durably and do not wait; the same id twice runs once. Returns the id.

        Raises:
            UnknownPipelineError: No such pipeline.
            InvalidInputError: Inputs that are not the pipeline's.
        """
        wanted = self._request(pipeline, inputs, request, timeout_s, lane, fields)
        await self.publish_request(wanted)
        return wanted.request

    async def publish_request(self, request: Request) -> None:
        """What any client can do: publish the request to the starting function's subject."""
        await self.bus.publish(
            subjects.work(subjects.START_FUNCTION, request.lane),
            encode(request),
            message_id=request.request,
            headers=request_headers(request),
        )

    async def start(self, request: Request) -> None:
        """Publish the first stages at once, without the hop over the starting function."""
        router = Router(self.bus, Joins(await self.bus.bucket("joins")))
        await router.start(self.pipelines.get(request.pipeline), request)

    async def cancel(self, request: str, reason: str = "cancelled") -> None:
        """Stop a request wherever it is."""
        await Cancellations(await self.bus.bucket("cancels")).cancel(_known(request), reason)

    async def result(self, request: str) -> Result | None:
        """The result of a request of the last 24 hours; None while there is none."""
        found = await self.bus.history(subjects.result(_known(request)), limit=1)
        return decode(Result, found[0][1]) if found else None

    async def trace(self, request: str) -> list[Span]:
        """The spans of a request, in the order in which its stages ended.

        Raises:
            UnknownRequestError: Nothing is known of it.
        """
        spans = [decode(Span, data) for _, data in await self.bus.history(subjects.trace(_known(request)))]
        if not spans:
            raise UnknownRequestError(f"no trace of request {request!r}; traces are kept for 24 hours", request=request)
        return spans

    def _request(
        self,
        pipeline: str,
        inputs: dict[str, Any],
        request: str | None,
        timeout_s: float | None,
        lane: Lane,
        fields: dict[str, Any],
    ) -> Request:
        self.pipelines.get(pipeline)
        return Request(
            request=request or new_request_id(),
            pipeline=pipeline,
            inputs=inputs,
            lane=lane,
            deadline_s=None if timeout_s is None else time.time() + timeout_s,
            **{"reply_format": "msgpack", **fields},
        )


def _known(request: str) -> str:
    # An id from outside must not become a wildcard: it could name the requests of others.
    try:
        return check_request_id(request)
    except ValueError as error:
        raise UnknownRequestError(f"no request {request!r}: {error}", request=request) from error
