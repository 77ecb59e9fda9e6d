"""The answers of a chat request in OpenAI's shapes, whole and piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bus.contracts import TokenChunk
from functions.stages.assemble import Answer
from functions.stages.choices import Choice, ChosenToken, TokenLogprob


def choices_of(answer: Answer) -> tuple[Choice, ...]:
    """Every answer, the first one first."""
    return answer.choices or (Choice(text=answer.text, finish_reason=answer.finish_reason),)


def logprobs_shape(tokens: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """OpenAI's `logprobs`; None where they were not asked for.

    Source: OpenAI API reference, The chat completion object.
    """
    return None if tokens is None else {"content": tokens, "refusal": None}


def token_shape(token: ChosenToken) -> dict[str, Any]:
    """One entry of `logprobs.content`."""
    return {**_alternative(token), "top_logprobs": [_alternative(one) for one in token.top]}


def _alternative(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.utf8)}


@dataclass(frozen=True, slots=True)
class Delta:
    """What a stream adds to one answer."""

    index: int
    text: str
    logprobs: list[dict[str, Any]] | None


@dataclass
class _Sent:
    text: str = ""
    told: int = 0


@dataclass
class ChoiceDeltas:
    """Sorts a stream into its answers, each part of them once: a redelivered stage streams again from the start."""

    _sent: dict[int, _Sent] = field(default_factory=dict)

    def of(self, chunk: TokenChunk) -> Delta | None:
        """What a chunk adds; None: nothing."""
        data = chunk.data
        index = int(data.get("choice", 0))
        text, offset = (data["content"], data["offset"]) if index else (chunk.text, chunk.offset)
        tokens = [ChosenToken.model_validate(one) for one in data.get("logprobs", ())]
        return self._add(index, text, offset, tokens, int(data.get("first", 0)))

    def rest(self, answer: Answer) -> Iterator[Delta]:
        """What was lost on the way, once the whole answer is there: tokens are broadcast, not stored."""
        for index, choice in enumerate(choices_of(answer)):
            sent = self._sent.get(index, _Sent())
            if not choice.text.startswith(sent.text):
                continue
            delta = self._add(index, choice.text, 0, choice.logprobs or (), 0)
            if delta is not None:
                yield delta

    def _add(
        self, index: int, text: str, offset: int, tokens: tuple[ChosenToken, ...] | list[ChosenToken], first: int
    ) -> Delta | None:
        sent = self._sent.setdefault(index, _Sent())
        # A gap is not filled by what comes behind it: `rest` tells both in their order.
        fresh = text[len(sent.text) - offset :] if offset <= len(sent.text) else ""
        untold = tokens[sent.told - first :] if first <= sent.told else ()
        sent.text += fresh
        sent.told += len(untold)
        if not fresh and not untold:
            return None
        return Delta(index, fresh, [token_shape(one) for one in untold] or None)
