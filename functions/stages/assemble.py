"""`assemble`: the parts of an answer, put together."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bus.contracts import Contract
from functions.context import Context
from functions.decorator import function
from functions.stages.choices import Choice
from functions.stages.parts import ImageLabels, Speech, Transcript, Usage
from functions.stages.sources import Source


class Answer(Contract):
    """What a chat request gets."""

    text: str
    finish_reason: str
    usage: Usage
    speech: Speech | None = None
    transcripts: tuple[Transcript, ...] = Field(default=(), description="What was heard.")
    labels: tuple[ImageLabels, ...] = Field(default=(), description="What was seen.")
    choices: tuple[Choice, ...] = Field(
        default=(), description="Every answer, the first one too, where several or log-probabilities were asked for."
    )
    sources: tuple[Source, ...] = Field(default=(), description="What of the media stood in the prompt.")


class AssembleInputs(Contract):
    """The parts; those of modalities that the request did not use are absent."""

    text: str
    finish_reason: str
    usage: Usage
    speech: Speech | None = None
    transcripts: tuple[Transcript, ...] = ()
    labels: tuple[ImageLabels, ...] = ()
    choices: tuple[Choice, ...] = ()
    sources: tuple[Source, ...] = ()


class AssembleOutputs(Contract):
    """The answer."""

    answer: Answer


@function("assemble", group="media", slots=16)
async def assemble(context: Context[Any], inputs: AssembleInputs) -> AssembleOutputs:
    """Put the answer together."""
    return AssembleOutputs(answer=Answer(**{name: getattr(inputs, name) for name in AssembleInputs.model_fields}))
