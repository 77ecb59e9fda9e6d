"""Choose the next token of every running answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.generation.candidates import draw_tokens, largest
from runtime.generation.penalties import SeenTokens, add_bias, penalise
from runtime.generation.sampling import SamplingConfig

Floats = NDArray[np.float32]
_NO_TOKENS = np.zeros(0, np.int32)


class Constraint(Protocol):
    """What an answer has to look like."""

    def allowed(self) -> NDArray[np.bool_]:
        """The tokens that may come next, bool `(vocabulary,)`; none where no answer is possible any more."""

    def accept(self, token: int) -> None:
        """Go on behind a token."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was for the model itself, before temperature, penalties and constraints.

    Attributes:
        token: Its id.
        logprob: Natural logarithm of its probability.
        top: The likeliest tokens and their log-probabilities, likeliest first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A chosen token, and how likely it was where that was asked for."""

    token: int
    logprob: TokenLogprob | None = None


class Sampler:
    """What the choices of one answer depend on besides the logits: its settings, its past, its random state.

    Args:
        config: Settings.
        prompt: int32 `(token,)`, for the repetition penalty.
        constraint: What the answer has to look like.
    """

    def __init__(
        self, config: SamplingConfig, prompt: NDArray[np.int32] = _NO_TOKENS, constraint: Constraint | None = None
    ) -> None:
        self.config = config
        self.constraint = constraint
        self.seen = SeenTokens(prompt) if config.penalises else None
        self._random = np.random.Generator(np.random.PCG64(config.seed & (2**64 - 1)))

    def draw(self) -> float:
        """The next random number of this answer, in [0, 1)."""
        return float(self._random.random())

    def observe(self, token: int) -> None:
        """Remember what was chosen."""
        if self.seen is not None:
            self.seen.add(token)
        if self.constraint is not None:
            self.constraint.accept(token)


def choose_tokens(samplers: Sequence[Sampler], logits: Floats) -> list[TokenChoice | None]:
    """The next token of each answer; None where the logits are no numbers, or the constraint leaves none.

    Args:
        samplers: One for each row.
        logits: float32 `(row, vocabulary)`; written to.
    """
    asked = [row for row, sampler in enumerate(samplers) if sampler.config.top_logprobs is not None]
    original = logits[asked]
    _adjust(samplers, logits)
    tokens = logits.argmax(axis=1)
    # argmax finds a NaN before any number, and an infinity before all others.
    sound = np.isfinite(logits[np.arange(len(tokens)), tokens])
    drawn = [row for row, sampler in enumerate(samplers) if not sampler.config.greedy and sound[row]]
    if drawn:
        chosen = [samplers[row] for row in drawn]
        tokens[drawn] = draw_tokens(logits, drawn, [one.config for one in chosen], [one.draw() for one in chosen])
    for sampler, token, valid in zip(samplers, tokens.tolist(), sound, strict=True):
        if valid:
            sampler.observe(token)
    told = {
        row: _logprob(values, int(tokens[row]), samplers[row].config.top_logprobs or 0)
        for row, values in zip(asked, original, strict=True)
    }
    return [TokenChoice(token, told.get(row)) if sound[row] else None for row, token in enumerate(tokens.tolist())]


def _adjust(samplers: Sequence[Sampler], logits: Floats) -> None:
    penalised = [(row, one.config, one.seen) for row, one in enumerate(samplers) if one.seen is not None]
    if penalised:
        penalise(logits, penalised)
    biased = [(row, one.config.logit_bias) for row, one in enumerate(samplers) if one.config.logit_bias]
    if biased:
        add_bias(logits, biased)
    for row, sampler in enumerate(samplers):
        if sampler.constraint is not None:
            logits[row, ~sampler.constraint.allowed()] = -np.inf


def _logprob(logits: Floats, token: int, count: int) -> TokenLogprob:
    peak = float(logits.max())
    total = peak + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    top = largest(logits, count) if count else np.zeros(0, np.intp)
    values = logits[top].astype(np.float64) - total
    return TokenLogprob(token, float(logits[token]) - total, tuple(zip(top.tolist(), values.tolist(), strict=True)))
