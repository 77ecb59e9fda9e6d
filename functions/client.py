"""Starting a pipeline and waiting for its answer: what the gateway and the command line stand on."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from bus import subjects
from bus.contracts import Lane, Request, Result, Span, TokenChunk
from bus.contracts.codec import decode, encode
from bus.contracts.event import check_request_id
from bus.errors import (
    BusUnavailableError,
    DeadlineExceededError,
    InvalidInputError,
    UnknownPipelineError,
    UnknownRequestError,
    error_from_code,
)
from bus.ports import Bus, Subscription
from functions.cancel import Cancellations
from functions.flow.catalog import Pipelines
from functions.flow.join import Joins
from functions.flow.router import Router

log = logging.getLogger("omnibus.client")

_POLL_S = 2.0
"""How long to listen before looking whether the result was missed while the connection was down."""


def new_request_id() -> str:
    """An id that sorts by time and that nobody else will make."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(8)}"


class Running:
    """One request on its way. Use as a context manager; leaving it early cancels the request."""

    def __init__(
        self, client: PipelineClient, request: Request, start: Callable[[Request], Awaitable[None]], streams: bool
    ) -> None:
        self.request = request
        self._start = start
        self._streams = streams
        self._client = client
        self._messages: asyncio.Queue[TokenChunk | Result] = asyncio.Queue()
        self._subscriptions: list[Subscription] = []
        self._result: Result | None = None
        self._seen: dict[str, int] = {}

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.request

    async def __aenter__(self) -> Self:
        """Listen first, then start, so that nothing is missed."""
        try:
            for subject in self._subjects():
                self._subscriptions.append(await self._client.bus.listen(subject, self._on_message))
            await self._start(self.request)
        except (InvalidInputError, UnknownPipelineError):
            await self._close()  # refused before anything was published
            raise
        except BaseException:
            # Some of it may be on its way, and nobody will wait for it.
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; a request without a result yet is cancelled: nobody waits for it."""
        await self._close()
        if self._result is None:
            try:
                await self._client.cancel(self.id, "the client went away")
            except BusUnavailableError as failure:
                log.warning("request %s could not be cancelled: %s", self.id, failure)

    async def chunks(self) -> AsyncIterator[TokenChunk]:
        """The streamed answer as it is made, without repetitions; ends when the result is there."""
        while self._result is None:
            message = await self._next()
            if isinstance(message, Result):
                self._result = message
            else:
                fresh = self._fresh(message)
                if fresh is not None:
                    yield fresh

    async def result(self) -> Result:
        """The end of the request, whatever it is.

        Raises:
            DeadlineExceededError: The deadline passed without one.
        """
        async for _ in self.chunks():
            pass
        assert self._result is not None
        return self._result

    async def outputs(self) -> dict[str, Any]:
        """The outputs of a request that succeeded.

        Raises:
            OmnibusError: The error that ended the request, as its stage raised it.
        """
        return outputs_of(await self.result())

    def _subjects(self) -> tuple[str, ...]:
        result = subjects.result(self.id)
        return (subjects.token(self.id), result) if self._streams else (result,)

    async def _close(self) -> None:
        while self._subscriptions:
            await self._subscriptions.pop().close()

    async def _next(self) -> TokenChunk | Result:
        while True:
            try:
                async with asyncio.timeout(self._patience_s()):
                    return await self._messages.get()
            except TimeoutError:
                missed = await self._client.result(self.id)
                if missed is not None:
                    return missed
                if self.request.deadline_s is not None and time.time() > self.request.deadline_s:
                    raise DeadlineExceededError(
                        f"request {self.id} had no result before its deadline", request=self.id
                    ) from None

    def _patience_s(self) -> float:
        if self.request.deadline_s is None:
            return _POLL_S
        return min(_POLL_S, max(0.0, self.request.deadline_s - time.time()) + 0.05)

    def _fresh(self, chunk: TokenChunk) -> TokenChunk | None:
        """The part of a chunk that was not seen: a redelivered stage streams again from the start."""
        seen = self._seen.get(chunk.stage, 0)
        end = chunk.offset + len(chunk.text)
        if chunk.text and end <= seen:
            return None
        self._seen[chunk.stage] = max(seen, end)
        if chunk.offset >= seen:
            return chunk
        return chunk.model_copy(update={"offset": seen, "text": chunk.text[seen - chunk.offset :]})

    def _on_message(self, subject: str, data: bytes) -> None:
        kind = subject.split(".", 1)[0]
        if kind == "result":
            self._messages.put_nowait(decode(Result, data))
        elif kind == "token":
            self._messages.put_nowait(decode(TokenChunk, data))


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
            subjects.work(subjects.START_FUNCTION, request.lane), encode(request), message_id=request.request
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


def outputs_of(result: Result) -> dict[str, Any]:
    """The outputs of a result that succeeded.

    Raises:
        OmnibusError: The error that ended the request, as its stage raised it.
    """
    if result.error is None:
        return result.outputs
    error = result.error
    raise error_from_code(
        error.code,
        error.message,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        **{**error.details, "request": result.request, "stage": error.stage},
    )


def _known(request: str) -> str:
    # An id from outside must not become a wildcard: it could name the requests of others.
    try:
        return check_request_id(request)
    except ValueError as error:
        raise UnknownRequestError(f"no request {request!r}: {error}", request=request) from error
