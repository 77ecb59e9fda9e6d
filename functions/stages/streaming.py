"""From the engine's answers to the stream of a stage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from functions.context import Context
from functions.stages.choices import Choice, ChosenToken, TokenLogprob

if TYPE_CHECKING:
    from runtime.generation.request import Generation, TextDelta
    from runtime.generation.sampler import TokenLogprob as EngineLogprob

TokenBytes = Callable[[int], bytes]

_COALESCE_S = 0.015


@dataclass(kw_only=True)
class AnswerStream:
    """Emits one answer while it is made, several tokens at once when they come fast.

    The first answer is the stream's text; the text of another one is data, `{"choice", "content", "offset"}`, so that a
    reader who knows of one answer sees one. Log-probabilities come as `{"logprobs", "first"}`, with the index of the
    first of their tokens.

    Attributes:
        context: The stage's run.
        token_bytes: The bytes of a token.
        index: Which answer it is, from 0.
        tells: Whether log-probabilities were asked for.
        produced: Tokens so far.
    """

    context: Context[Any]
    token_bytes: TokenBytes
    index: int
    tells: bool
    produced: int = 0
    _text: str = ""
    _sent: int = 0
    _logprobs: list[ChosenToken] = field(default_factory=list)
    _told: int = 0

    async def follow(self, generation: Generation) -> Choice:
        """Emit until the answer ends; returns all of it."""
        clock = asyncio.get_running_loop().time
        emitted_s, reason = 0.0, "stop"
        async with aclosing(aiter(generation)) as pieces:
            async for piece in pieces:
                self._add(piece)
                reason = piece.finish_reason or reason
                if piece.finish_reason or clock() - emitted_s >= _COALESCE_S:
                    await self._emit()
                    emitted_s = clock()
        return Choice(text=self._text, finish_reason=reason, logprobs=tuple(self._logprobs) if self.tells else None)

    def _add(self, piece: TextDelta) -> None:
        self._text += piece.text
        self.produced += len(piece.token_ids)
        self._logprobs += [self._chosen(logprob) for logprob in piece.logprobs]

    async def _emit(self) -> None:
        text, logprobs = self._text[self._sent :], self._logprobs[self._told :]
        if not text and not logprobs:
            return
        data: dict[str, Any] = {}
        if logprobs:
            data = {"logprobs": [one.model_dump() for one in logprobs], "first": self._told}
        if self.index:
            data |= {"choice": self.index, "content": text, "offset": self._sent}
        self._sent, self._told = len(self._text), len(self._logprobs)
        await self.context.emit("" if self.index else text, **data)

    def _chosen(self, logprob: EngineLogprob) -> ChosenToken:
        own = self._told_of(logprob.token, logprob.logprob)
        return ChosenToken(**own.model_dump(), top=tuple(self._told_of(*one) for one in logprob.top))

    def _told_of(self, token: int, logprob: float) -> TokenLogprob:
        held = self.token_bytes(token)
        return TokenLogprob(token=held.decode("utf-8", "replace"), utf8=tuple(held), logprob=logprob)
