"""What a prompt must be before an engine takes it."""

from __future__ import annotations

from bus.errors import ContextLengthError, InvalidInputError
from runtime.generation.decoder import Decoder
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig


def row_limit(decoder: Decoder, prompt: PromptTokens) -> int:
    """The most tokens of a prompt and its answer: those of a row, and those whose positions the model knows."""
    return min(decoder.pool.capacity, decoder.positions - prompt.shift)


def check_prompt(decoder: Decoder, prompt: PromptTokens, sampling: SamplingConfig) -> None:
    """Look whether a prompt can be answered.

    Raises:
        ContextLengthError: It leaves no room for an answer.
        InvalidInputError: Embeddings of another width than the model's, or a bias for a token that it lacks.
    """
    length, width, context = len(prompt.ids), prompt.embeddings.shape[1], decoder.pool.capacity
    if length >= context:
        raise ContextLengthError(
            f"the prompt has {length} tokens, the model's context here is {context} with the answer; "
            "shorten the prompt",
            tokens=length,
            context=context,
        )
    furthest = -1 if prompt.positions is None else int(prompt.positions.max())
    if max(furthest, length + prompt.shift - 1) >= decoder.positions - 1:
        raise ContextLengthError(
            f"the prompt's media reach position {furthest} in time or space, the model knows {decoder.positions} with "
            "the answer; send shorter or smaller ones",
            tokens=length,
            context=context,
        )
    if len(prompt.embeddings) and width != decoder.hidden:
        raise InvalidInputError(f"embeddings have {width} dimensions, the model takes {decoder.hidden}")
    unknown = [token for token, _ in sampling.logit_bias if token >= decoder.vocabulary]
    if unknown:
        raise InvalidInputError(
            f"logit_bias names tokens {unknown}; the model has {decoder.vocabulary}", param="logit_bias"
        )
