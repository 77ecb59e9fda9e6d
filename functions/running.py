"""One request on its way: its stream, its result, its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bus import subjects
from bus.contracts import Request, Result, TokenChunk
from bus.contracts.codec import decode
from bus.errors import (
    BusUnavailableError,
    DeadlineExceededError,
    InvalidInputError,
    UnknownPipelineError,
    error_from_code,
)
from bus.ports import Subscription

if TYPE_CHECKING:
    from functions.client import PipelineClient

log = logging.getLogger("omnibus.client")

_POLL_S = 2.0
"""How long to listen before looking whether the result was missed while the connection was down."""


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

    def _on_message(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        kind = subject.split(".", 1)[0]
        if kind == "result":
            self._messages.put_nowait(decode(Result, data))
        elif kind == "token":
            self._messages.put_nowait(decode(TokenChunk, data))


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
