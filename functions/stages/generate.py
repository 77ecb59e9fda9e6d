"""`generate`: the answer, streamed while it is made."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bus.contracts import Contract
from bus.contracts.codec import digest_of
from bus.errors import ContextLengthError, InvalidInputError
from functions.context import Context
from functions.decorator import function
from functions.spec import ModelChoice
from functions.stages.choices import Choice
from functions.stages.parts import SamplingOptions, Usage
from functions.stages.prompt import LANGUAGE_MODEL, FusedPrompt, is_language_model
from functions.stages.streaming import AnswerStream

if TYPE_CHECKING:
    from runtime.generation.engine import TextEngine
    from runtime.generation.grammar import GrammarCompiler
    from runtime.generation.request import Generation, PromptTokens
    from runtime.generation.sampler import Constraint
    from runtime.generation.sampling import SamplingConfig
    from runtime.generation.tokenizer import ChatTokenizer
    from runtime.repository import Repository

_SLOTS = 8


class GenerateInputs(Contract):
    """A prompt and how to go on from it."""

    prompt: FusedPrompt
    sampling: SamplingOptions | None = None
    answer: str | None = Field(
        default=None,
        min_length=1,
        description="Do not choose an answer, but tell the log-probabilities of this one's tokens.",
    )


class GenerateOutputs(Contract):
    """The answer."""

    text: str
    finish_reason: str
    usage: Usage
    choices: tuple[Choice, ...] = Field(
        default=(), description="Every answer, the first one too, where several or log-probabilities were asked for."
    )


@dataclass(frozen=True, slots=True)
class Generator:
    """What `generate` needs."""

    engine: TextEngine
    tokenizer: ChatTokenizer
    grammars: GrammarCompiler
    hidden: int
    ref: str

    def close(self) -> None:
        """End its engine: another version took its place, or its memory is needed."""
        atexit.unregister(self.engine.close)
        self.engine.close()


def setup(repository: Repository) -> Generator:
    """Load the language model and start its engine."""
    from runtime.generation.decoder import Decoder
    from runtime.generation.engine import TextEngine
    from runtime.generation.grammar import GrammarCompiler
    from runtime.generation.installed_tokenizer import installed_tokenizer

    manifest = repository.resolve(LANGUAGE_MODEL)
    tokenizer = installed_tokenizer(repository, manifest)
    decoder = Decoder(repository.folder(manifest), manifest, slots=_SLOTS)
    engine = TextEngine(decoder, tokenizer.token_bytes)
    engine.open()
    atexit.register(engine.close)
    grammars = GrammarCompiler(tokenizer, decoder.vocabulary, decoder.end_tokens)
    return Generator(engine, tokenizer, grammars, manifest.dims["hidden"], manifest.ref)


async def warm_up(model: Generator) -> None:
    """Answer a short prompt with two tokens: a prefill and a step."""
    from runtime.generation.request import PromptTokens
    from runtime.generation.sampling import SamplingConfig

    prompt = PromptTokens(model.tokenizer.encode("ready"), np.zeros((0, model.hidden), np.float32), scope="warm-up")
    async for _ in model.engine.submit(prompt, SamplingConfig(max_tokens=2, temperature=0.0)):
        pass


@function(
    "generate",
    setup=setup,
    warm_up=warm_up,
    models=(LANGUAGE_MODEL,),
    made_for=lambda inputs: str(inputs.prompt.model),
    choice=ModelChoice(name=LANGUAGE_MODEL, of=lambda inputs: str(inputs.prompt.model), serves=is_language_model),
    group="generate",
    slots=_SLOTS,
    timeout_s=300.0,
    streams=True,
)
async def generate(context: Context[Generator], inputs: GenerateInputs) -> GenerateOutputs:
    """Generate, and stream the text.

    Raises:
        InvalidInputError: A prompt that was fused for another model, or a form of the answer that cannot be followed.
        ContextLengthError: A prompt without room for an answer, or for all of the one that is given.
        OverloadedError: (retryable) too many requests wait.
        CancelledRequestError: Nobody waits any more.
        DeadlineExceededError: The deadline passed.
    """
    if inputs.prompt.model != context.model.ref:
        raise InvalidInputError(f"the prompt was fused for {inputs.prompt.model}, here is {context.model.ref}")
    prompt = await _tokens(context, inputs.prompt)
    if inputs.answer is None:
        options = inputs.sampling or SamplingOptions()
        constraints = await _constraints(context, options)
        prediction = await _prediction(context, options)
    else:
        # Token by token, as it was chosen: several checked at once would be rounded otherwise.
        options, constraints = await context.run(_given, context.model, inputs.answer)
        prediction = None
    tells = options.top_logprobs is not None
    with _started(context, prompt, options, constraints, prediction) as generations:
        streams = [
            AnswerStream(context=context, token_bytes=context.model.tokenizer.token_bytes, index=index, tells=tells)
            for index in range(len(generations))
        ]
        choices = await asyncio.gather(
            *(stream.follow(generation) for stream, generation in zip(streams, generations, strict=True))
        )
    if inputs.answer is not None:
        _check_all_told(context.model, generations[0], streams[0].produced, options.max_tokens)
    usage = _usage(generations, streams, inputs.prompt)
    first = choices[0]
    context.note(**usage.model_dump(exclude={"by_modality"}, exclude_defaults=True), finish_reason=first.finish_reason)
    return GenerateOutputs(
        text=first.text,
        finish_reason=first.finish_reason,
        usage=usage,
        choices=tuple(choices) if tells or options.n > 1 else (),
    )


def _usage(generations: Sequence[Generation], streams: Sequence[AnswerStream], prompt: FusedPrompt) -> Usage:
    return Usage(
        prompt_tokens=generations[0].prompt_tokens,
        completion_tokens=sum(stream.produced for stream in streams),
        cached_tokens=generations[0].cached_tokens,
        accepted_prediction_tokens=sum(one.accepted_tokens for one in generations),
        rejected_prediction_tokens=sum(one.rejected_tokens for one in generations),
        by_modality=prompt.counts,
    )


@contextmanager
def _started(
    context: Context[Generator],
    prompt: PromptTokens,
    options: SamplingOptions,
    constraints: Sequence[Constraint | None],
    prediction: NDArray[np.int32] | None,
) -> Iterator[list[Generation]]:
    """One answer for each that is wanted; whatever ends one of them ends all."""
    generations = context.model.engine.submit_all(
        prompt,
        [_sampling(context, options, index) for index in range(len(constraints))],
        constraints=list(constraints),
        prediction=prediction,
        deadline_s=context.event.deadline_s,
        is_cancelled=lambda: context.cancelled,
    )
    try:
        yield generations
    finally:
        for generation in generations:
            generation.cancel()


async def _constraints(context: Context[Generator], options: SamplingOptions) -> Sequence[Constraint | None]:
    if options.format is None:
        return [None] * options.n
    compile_ = context.model.grammars.compile
    return await context.run(compile_, options.format.type, options.format.definition, options.n)


async def _prediction(context: Context[Generator], options: SamplingOptions) -> NDArray[np.int32] | None:
    if not options.prediction:
        return None
    # It may be as long as a file.
    return await context.run(context.model.tokenizer.encode, options.prediction)


def _given(model: Generator, text: str) -> tuple[SamplingOptions, Sequence[Constraint | None]]:
    """What makes the engine follow an answer, and tell how likely it is."""
    from runtime.generation.forced import ForcedAnswer

    tokens = model.tokenizer.encode(text)
    if not len(tokens):
        raise InvalidInputError("the answer to be told about has no tokens", param="answer")
    forced = ForcedAnswer(tokens, model.engine.vocabulary)
    return SamplingOptions(max_tokens=len(tokens), top_logprobs=0), [forced]


def _check_all_told(model: Generator, generation: Generation, told: int, given: int) -> None:
    """A sum over part of an answer would be taken for that over all of it."""
    if told < given:
        raise ContextLengthError(
            f"the prompt has {generation.prompt_tokens} tokens, and {told} of {given} tokens of the answer to be told "
            f"about fit behind it; {model.ref} takes {model.engine.context} in all: send less",
            tokens=generation.prompt_tokens + given,
            context=model.engine.context,
            model=model.ref,
        )


async def _tokens(context: Context[Generator], prompt: FusedPrompt) -> PromptTokens:
    from runtime.generation.request import PromptTokens

    embeddings = np.zeros((0, context.model.hidden), np.float32)
    if prompt.embeddings is not None:
        embeddings = await context.tensors.get(prompt.embeddings)
    ids, positions = [await context.tensors.get(one) for one in (prompt.ids, prompt.positions)]
    return PromptTokens(ids, embeddings, context.event.tenant, positions)


def _sampling(context: Context[Generator], options: SamplingOptions, index: int) -> SamplingConfig:
    from runtime.generation.sampling import SamplingConfig

    # The same request gives the same text, so that a redelivery does not contradict what was streamed before.
    derived = int(digest_of([context.event.request, context.event.stage])[:16], 16)
    return SamplingConfig(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logit_bias=tuple((int(token), bias) for token, bias in options.logit_bias.items()),
        top_logprobs=options.top_logprobs,
        seed=(derived if options.seed is None else options.seed) + index,
        stop=options.stop,
    )
