"""Small functions for tests of the framework."""

from __future__ import annotations

import asyncio
from typing import Any

from bus.contracts import Contract
from bus.errors import InvalidInputError, StoreUnavailableError
from functions import Context, Reject, Retry, Skip
from functions.registry import Registry
from functions.spec import FunctionSpec, Handler


class Words(Contract):
    """A list of words."""

    words: tuple[str, ...] = ()


class Pair(Contract):
    """Two lists, the second may be missing."""

    left: tuple[str, ...]
    right: tuple[str, ...] = ()


class Text(Contract):
    """One text."""

    text: str


class Log:
    """Which handlers ran, and what they should do."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.failures: dict[str, list[BaseException]] = {}
        self.gates: dict[str, asyncio.Event] = {}

    async def enter(self, stage: str) -> None:
        """Note a run; wait at its gate, then fail if it should."""
        self.ran.append(stage)
        if stage in self.gates:
            await self.gates[stage].wait()
        if self.failures.get(stage):
            raise self.failures[stage].pop(0)


def word_functions(log: Log) -> Registry:
    """`words.upper`, `words.lower`, `words.merge` and `words.say`."""

    async def upper(context: Context[Any], inputs: Words) -> Words:
        await log.enter(context.event.stage)
        return Words(words=tuple(word.upper() for word in inputs.words))

    async def lower(context: Context[Any], inputs: Words) -> Words:
        await log.enter(context.event.stage)
        return Words(words=tuple(word.lower() for word in inputs.words))

    async def merge(context: Context[Any], inputs: Pair) -> Words:
        await log.enter(context.event.stage)
        return Words(words=inputs.left + inputs.right)

    async def say(context: Context[Any], inputs: Words) -> Text:
        await log.enter(context.event.stage)
        for word in inputs.words:
            await context.emit(word + " ")
            context.check()
        return Text(text=" ".join(inputs.words))

    registry = Registry()
    for name, handler, inputs, outputs, cacheable in (
        ("words.upper", upper, Words, Words, True),
        ("words.lower", lower, Words, Words, False),
        ("words.merge", merge, Pair, Words, False),
        ("words.say", say, Words, Text, False),
    ):
        registry.add(_spec(name, handler, inputs, outputs, cacheable))
    return registry


def _spec(
    name: str, handler: Handler, inputs: type[Contract], outputs: type[Contract], cacheable: bool
) -> FunctionSpec:
    return FunctionSpec(
        name=name, handler=handler, inputs=inputs, outputs=outputs, cacheable=cacheable, max_attempts=3, timeout_s=5
    )


DIAMOND = {
    "pipeline": "diamond",
    "inputs": {"words": "required", "more": "optional"},
    "stages": {
        "big": {"function": "words.upper", "inputs": {"words": "request.words"}},
        "small": {"function": "words.lower", "inputs": {"words": "request.more"}},
        "both": {"function": "words.merge", "inputs": {"left": "big.words", "right": "small.words?"}},
        "say": {"function": "words.say", "inputs": {"words": "both.words"}},
    },
    "outputs": {"text": "say.text", "more": "request.more"},
}
"""Two branches and a join; the second branch is skipped when there is nothing for it."""

__all__ = ["DIAMOND", "InvalidInputError", "Log", "Reject", "Retry", "Skip", "StoreUnavailableError", "word_functions"]
