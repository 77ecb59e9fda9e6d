"""`explain.keep`: what was asked, kept beside its media, so that the answer can be explained."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bus.contracts import Contract, MediaSource
from functions.context import Context
from functions.decorator import function
from functions.signals import Skip
from functions.stages.explain.asked import Asked, keep_asked
from functions.stages.parts import MediaOptions, Message


class KeepInputs(Contract):
    """A chat with media, as it came."""

    messages: tuple[Message, ...]
    media: tuple[MediaSource, ...] = ()
    model: str | None = None
    options: tuple[MediaOptions, ...] | None = None
    read: tuple[int, ...] | None = None
    listen: tuple[int, ...] | None = None
    answer: str | None = Field(default=None, description="Given where the chat is asked again to explain its answer.")


class KeepOutputs(Contract):
    """Nothing that another stage needs."""


@function("explain.keep", group="media", slots=8)
async def keep(context: Context[Any], inputs: KeepInputs) -> KeepOutputs:
    """Keep a chat that has media.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
    """
    if inputs.answer is not None:
        raise Skip("the chat is asked again to explain its answer")
    asked = inputs.model_dump(exclude_none=True)
    await keep_asked(context.store, Asked(request=context.event.request, pipeline=context.event.pipeline, inputs=asked))
    return KeepOutputs()
