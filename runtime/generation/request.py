"""A prompt on its way in and its answer on its way out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.generation.sampler import TokenLogprob

_TOGETHER_S = 0.02

MEDIA_TOKEN = -1
"""Stands in a prompt where an embedding takes the place of a token."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """What the model is given.

    Attributes:
        ids: int32 `(token,)`; `MEDIA_TOKEN` where an embedding stands.
        embeddings: float32 `(slot, dim)`, one row for each `MEDIA_TOKEN`, in their order.
        positions: int32 `(3, token)`, time, height and width of each, for a model that takes them; None: text alone,
            whose positions are its places.
        scope: Only prompts of one scope share a prefix; otherwise the time to the first token would tell one tenant
            what another has asked.

    Raises:
        InvalidInputError: Other dtypes or shapes, no tokens, another number of embeddings than of slots, or positions
            below 0.
    """

    ids: NDArray[np.int32]
    embeddings: NDArray[np.float32]
    scope: str = ""
    positions: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        slots = int((self.ids == MEDIA_TOKEN).sum())
        if self.ids.dtype != np.int32 or self.ids.ndim != 1 or not len(self.ids):
            raise InvalidInputError(f"a prompt is int32 (token,) with tokens, not {self.ids.dtype} {self.ids.shape}")
        if self.embeddings.dtype != np.float32 or self.embeddings.ndim != 2 or len(self.embeddings) != slots:
            raise InvalidInputError(
                f"a prompt with {slots} media slots takes float32 ({slots}, dim) embeddings, "
                f"not {self.embeddings.dtype} {self.embeddings.shape}"
            )
        places, shape = self.positions, (3, len(self.ids))
        if places is not None and (places.dtype != np.int32 or places.shape != shape or places.min() < 0):
            raise InvalidInputError(
                f"positions of {len(self.ids)} tokens are int32 {shape} from 0, not {places.dtype} {places.shape}"
            )

    @property
    def shift(self) -> int:
        """How far the position of what follows is ahead of its place, below 0 where it is behind."""
        return 0 if self.positions is None else int(self.positions.max()) + 1 - len(self.ids)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of an answer.

    Attributes:
        text: Whole characters; may be empty while one or a stop string is undecided.
        token_ids: The tokens that were chosen since the last piece.
        finish_reason: `stop` or `length` in the last piece, else None.
        logprobs: Of the tokens, where they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Generation:
    """The answer to one prompt, to be iterated once; leaving the iteration cancels what is left.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        cached_tokens: How many of them did not have to be computed; known from the first piece on.
        accepted_tokens: Guessed tokens of the answer that came true.
        rejected_tokens: Guessed tokens that did not.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = self.accepted_tokens = self.rejected_tokens = 0
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[TextDelta | Exception] = asyncio.Queue()
        self._abandoned = False
        # Of the engine's thread: what was not handed over yet, and when something was.
        self._held: list[TextDelta | Exception] = []
        self._handed_s = -_TOGETHER_S

    def cancel(self) -> None:
        """Stop after the current step; safe from any thread, and fine when it is over."""
        self._abandoned = True

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits any more."""
        return self._abandoned

    def deliver(self, piece: TextDelta | Exception) -> None:
        """Hand over a piece, or the error that ends it; called from the engine's thread.

        The first and the last one go at once, others with whatever follows shortly: the loop that takes them wakes on
        a core that the next step could use.
        """
        self._held.append(piece)
        now_s = time.monotonic()
        ends = isinstance(piece, Exception) or piece.finish_reason is not None
        if not ends and now_s - self._handed_s < _TOGETHER_S:
            return
        self._handed_s, pieces, self._held = now_s, self._held, []
        try:
            self._loop.call_soon_threadsafe(self._take, pieces)
        except RuntimeError:  # the loop is closed: nobody is there
            self._abandoned = True

    def _take(self, pieces: Sequence[TextDelta | Exception]) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    async def __aiter__(self) -> AsyncGenerator[TextDelta, None]:
        """Pieces as they come.

        Raises:
            CancelledRequestError: It was cancelled.
            DeadlineExceededError: Its deadline passed.
            EngineError: The engine failed.
        """
        try:
            while True:
                piece = await self._pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if piece.finish_reason is not None:
                    return
        finally:
            self.cancel()


IsCancelled = Callable[[], bool]
