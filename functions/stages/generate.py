"""`generate`: the answer, streamed while it is made."""

from __future__ import annotations

import asyncio
import atexit
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bus.contracts import Contract
from bus.contracts.codec import digest_of
from bus.errors import InvalidInputError
from functions.context import Context
from functions.decorator import function
from functions.stages.parts import SamplingOptions, Usage
from functions.stages.prompt import LANGUAGE_MODEL, FusedPrompt

if TYPE_CHECKING:
    from runtime.generation.engine import TextEngine
    from runtime.generation.request import Generation, PromptTokens
    from runtime.generation.sampling import SamplingConfig
    from runtime.repository import Repository

_SLOTS = 8
_COALESCE_S = 0.015


class GenerateInputs(Contract):
    """A prompt and how to go on from it."""

    prompt: FusedPrompt
    sampling: SamplingOptions | None = None


class GenerateOutputs(Contract):
    """The answer."""

    text: str
    finish_reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Generator:
    """What `generate` needs."""

    engine: TextEngine
    hidden: int
    ref: str


def setup(repository: Repository) -> Generator:
    """Load the language model and start its engine."""
    from runtime.generation.decoder import LlamaDecoder
    from runtime.generation.engine import TextEngine
    from runtime.generation.tokenizer import ChatTokenizer

    manifest = repository.resolve(LANGUAGE_MODEL)
    folder = repository.folder(manifest)
    engine = TextEngine(LlamaDecoder(folder, manifest, slots=_SLOTS), ChatTokenizer(folder).token_bytes)
    engine.open()
    atexit.register(engine.close)
    return Generator(engine, manifest.dims["hidden"], manifest.ref)


@function(
    "generate",
    setup=setup,
    models=(LANGUAGE_MODEL,),
    group="generate",
    slots=_SLOTS,
    timeout_s=300.0,
    streams=True,
)
async def generate(context: Context[Generator], inputs: GenerateInputs) -> GenerateOutputs:
    """Generate, and stream the text.

    Raises:
        InvalidInputError: A prompt that was fused for another model.
        ContextLengthError: A prompt without room for an answer.
        OverloadedError: (retryable) too many requests wait.
        CancelledRequestError: Nobody waits any more.
        DeadlineExceededError: The deadline passed.
    """
    if inputs.prompt.model != context.model.ref:
        raise InvalidInputError(f"the prompt was fused for {inputs.prompt.model}, here is {context.model.ref}")
    generation = context.model.engine.submit(
        await _tokens(context, inputs.prompt),
        _sampling(context, inputs.sampling or SamplingOptions()),
        deadline_s=context.event.deadline_s,
        is_cancelled=lambda: context.cancelled,
    )
    text, produced, reason = await _stream(context, generation)
    usage = Usage(
        prompt_tokens=generation.prompt_tokens,
        completion_tokens=produced,
        cached_tokens=generation.cached_tokens,
        by_modality=inputs.prompt.counts,
    )
    context.note(**usage.model_dump(exclude={"by_modality"}), finish_reason=reason)
    return GenerateOutputs(text=text, finish_reason=reason, usage=usage)


async def _stream(context: Context[Generator], generation: Generation) -> tuple[str, int, str]:
    """Emit the pieces, several at once when they come fast; returns all of it."""
    clock = asyncio.get_running_loop().time
    text, waiting, produced, reason = "", "", 0, "stop"
    emitted_s = 0.0
    async with aclosing(aiter(generation)) as pieces:
        async for piece in pieces:
            text += piece.text
            waiting += piece.text
            produced += len(piece.token_ids)
            reason = piece.finish_reason or reason
            if waiting and (piece.finish_reason or clock() - emitted_s >= _COALESCE_S):
                await context.emit(waiting)
                waiting, emitted_s = "", clock()
    return text, produced, reason


async def _tokens(context: Context[Generator], prompt: FusedPrompt) -> PromptTokens:
    from runtime.generation.request import PromptTokens

    embeddings = np.zeros((0, context.model.hidden), np.float32)
    if prompt.embeddings is not None:
        embeddings = await context.tensors.get(prompt.embeddings)
    return PromptTokens(await context.tensors.get(prompt.ids), embeddings, context.event.tenant)


def _sampling(context: Context[Generator], options: SamplingOptions) -> SamplingConfig:
    from runtime.generation.sampling import SamplingConfig

    # The same request gives the same text, so that a redelivery does not contradict what was streamed before.
    derived = int(digest_of([context.event.request, context.event.stage])[:16], 16)
    return SamplingConfig(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=derived if options.seed is None else options.seed,
        stop=options.stop,
    )
