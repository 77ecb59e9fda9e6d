"""Choose the next token from the logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError

_FIRST_CANDIDATES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How tokens are chosen and when to stop.

    Attributes:
        max_tokens: The most tokens to generate, at least 1.
        temperature: 0 is greedy.
        top_k: Only the k likeliest tokens; 0: all.
        top_p: Only the likeliest tokens that together have this probability; 1: all.
        seed: The same seed and prompt give the same text.
        stop: Texts that end the answer; they are not part of it.

    Raises:
        InvalidInputError: Names every value that is out of range.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        if self.max_tokens < 1:
            problems.append(f"max_tokens is {self.max_tokens}; it is at least 1")
        if not 0 <= self.temperature < float("inf"):
            problems.append(f"temperature is {self.temperature}; it is 0 or more")
        if self.top_k < 0:
            problems.append(f"top_k is {self.top_k}; it is 0 or more")
        if not 0 < self.top_p <= 1:
            problems.append(f"top_p is {self.top_p}; it is more than 0 and at most 1")
        if any(not text for text in self.stop):
            problems.append("a stop string is empty")
        if problems:
            raise InvalidInputError("sampling: " + "; ".join(problems), problems=problems)


class Sampler:
    """Chooses the tokens of one answer; holds its random state."""

    def __init__(self, config: SamplingConfig) -> None:
        self._config = config
        self._random = np.random.Generator(np.random.PCG64(config.seed & (2**64 - 1)))

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The next token.

        Args:
            logits: float32 `(vocabulary,)`.
        """
        config = self._config
        if config.temperature == 0 or config.top_k == 1:
            return int(logits.argmax())
        tokens, probabilities = _candidates(logits, config)
        steps = probabilities.cumsum()
        return int(tokens[np.searchsorted(steps, self._random.random() * steps[-1], side="right")])


def _candidates(logits: NDArray[np.float32], config: SamplingConfig) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The tokens that may be chosen, likeliest first, and their probabilities among all tokens."""
    scaled = logits.astype(np.float64) / config.temperature
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    limit = min(config.top_k or len(weights), len(weights))
    # A full sort of the vocabulary costs more than a decode step's share; few tokens mostly hold all of top_p.
    size = min(_FIRST_CANDIDATES, limit)
    tokens = _largest(weights, size)
    if config.top_k and config.top_p < 1:
        tokens = _largest(weights, limit)
        weights = weights / weights[tokens].sum()
    elif size < limit and weights[tokens].sum() < config.top_p:
        tokens = _largest(weights, limit)
    chosen = weights[tokens]
    if config.top_p < 1:
        count = int(np.searchsorted(chosen.cumsum(), config.top_p, side="left")) + 1
        tokens, chosen = tokens[:count], chosen[:count]
    return tokens, chosen


def _largest(weights: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the largest weights, largest first; ties go to the lower index."""
    some = np.argpartition(-weights, count - 1)[:count] if count < len(weights) else np.arange(len(weights))
    return some[np.lexsort((some, -weights[some]))]
