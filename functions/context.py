"""What a handler can reach while it runs."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bus.contracts import Event, TokenChunk
from bus.errors import CancelledRequestError, DeadlineExceededError
from bus.ports import ObjectStore, TensorPlane
from functions.encoder_cache import EncoderCache

M = TypeVar("M")
R = TypeVar("R")

Emit = Callable[[TokenChunk], Awaitable[None]]

_LOOK_EVERY_S = 0.02


class _Work:
    """Blocking work that is on its way: a thread cannot be cancelled, so it is to be known whether it has ended."""

    __slots__ = ("_state", "going")

    def __init__(self, state: contextvars.Context) -> None:
        self._state = state
        self.going = False

    def do(self, work: Callable[..., R], *args: Any) -> R:
        self.going = True
        try:
            return self._state.run(work, *args)
        finally:
            self.going = False


@dataclass(kw_only=True)
class Context(Generic[M]):
    """One run of one function.

    Attributes:
        event: The message that triggered it.
        model: What the function's `setup` returned.
        store: Media and other objects.
        tensors: Tensors by reference.
        encoder_cache: Media that were encoded before.
        attempt: Which delivery this is, from 1.
        notes: Numbers and words for the trace, such as `{"tokens": 12}`.
    """

    event: Event
    model: M
    store: ObjectStore
    tensors: TensorPlane
    encoder_cache: EncoderCache
    attempt: int = 1
    emit_chunk: Emit | None = None
    executor: Executor | None = None
    is_cancelled: Callable[[], bool] = field(default=lambda: False)
    notes: dict[str, Any] = field(default_factory=dict)
    _offset: int = 0
    _works: list[_Work] = field(default_factory=list)

    async def run(self, work: Callable[..., R], *args: Any) -> R:
        """Run blocking work, such as inference, off the event loop."""
        loop = asyncio.get_running_loop()
        one = _Work(contextvars.copy_context())
        self._works.append(one)
        try:
            return await loop.run_in_executor(self.executor, lambda: one.do(work, *args))
        finally:
            if not one.going:
                self._works.remove(one)

    async def ends(self, patience_s: float) -> bool:
        """Whether all blocking work that was begun has ended, or does soon; for a run that was told to end.

        Args:
            patience_s: How long to wait for it.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + patience_s
        while any(one.going for one in self._works):
            if loop.time() > until_s:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)
        return True

    async def emit(self, text: str = "", **data: Any) -> None:
        """Stream a piece of the answer to whoever listens on the request's token subject."""
        if self.emit_chunk is not None:
            await self.emit_chunk(
                TokenChunk(
                    request=self.event.request,
                    stage=self.event.stage,
                    offset=self._offset,
                    text=text,
                    data=data,
                )
            )
        self._offset += len(text)

    @property
    def emitted(self) -> int:
        """Characters that were streamed so far."""
        return self._offset

    def note(self, **notes: Any) -> None:
        """Keep numbers and words for the trace."""
        self.notes.update(notes)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more; safe to ask from any thread."""
        return self.is_cancelled() or self._late

    def check(self) -> None:
        """Stop here if nobody waits any more.

        Raises:
            CancelledRequestError: The client went away or cancelled.
            DeadlineExceededError: The request's deadline passed.
        """
        if self._late:
            raise DeadlineExceededError(f"request {self.event.request} is past its deadline", stage=self.event.stage)
        if self.is_cancelled():
            raise CancelledRequestError(f"request {self.event.request} was cancelled", stage=self.event.stage)

    @property
    def _late(self) -> bool:
        return self.event.deadline_s is not None and time.time() > self.event.deadline_s
