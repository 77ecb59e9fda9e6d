"""How tokens are chosen and when an answer stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bus.errors import InvalidInputError

MAX_TOP_LOGPROBS = 20
"""The most alternatives that are told for a token; OpenAI's limit."""

LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY = 0.01, 100.0
"""Beyond these, logits leave the numbers that there are."""

# Below this, dividing by the temperature overflows, and nothing but the likeliest token is ever drawn.
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How tokens are chosen and when to stop.

    Attributes:
        max_tokens: The most tokens to generate, at least 1.
        temperature: 0 is greedy.
        top_k: Only the k likeliest tokens; 0: all.
        top_p: Only the likeliest tokens that together have this probability; 1: all.
        min_p: Only tokens that are at least this share as likely as the likeliest; 0: all.
        repetition_penalty: Divides the positive logits, and multiplies the negative ones, of tokens that are in the
            prompt or the answer; 1: none.
        presence_penalty: Taken from the logits of tokens that are in the answer.
        frequency_penalty: Taken from the logits of tokens for each time that they are in the answer.
        logit_bias: Token ids, and what is added to their logits.
        top_logprobs: Tell the log-probability of each token and of this many alternatives; None: tell nothing.
        seed: The same seed and prompt give the same text.
        stop: Texts that end the answer; they are not part of it.

    Raises:
        InvalidInputError: Names every value that is out of range.

    Source: Keskar et al., CTRL (2019), section 4.1 (repetition); OpenAI API reference (presence, frequency, bias);
        Nguyen et al., Min-p Sampling (ICLR 2025).
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise InvalidInputError("sampling: " + "; ".join(problems), problems=problems)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < _GREEDY_BELOW or self.top_k == 1

    @property
    def penalises(self) -> bool:
        """Whether tokens that came before count."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def _problems(self) -> Iterator[str]:
        most = float("inf")
        if self.max_tokens < 1:
            yield f"max_tokens is {self.max_tokens}; it is at least 1"
        if not 0 <= self.temperature < most:
            yield f"temperature is {self.temperature}; it is 0 or more"
        if self.top_k < 0:
            yield f"top_k is {self.top_k}; it is 0 or more"
        if not 0 < self.top_p <= 1:
            yield f"top_p is {self.top_p}; it is more than 0 and at most 1"
        if not 0 <= self.min_p <= 1:
            yield f"min_p is {self.min_p}; it is from 0 to 1"
        if not LEAST_REPETITION_PENALTY <= self.repetition_penalty <= MOST_REPETITION_PENALTY:
            yield (
                f"repetition_penalty is {self.repetition_penalty}; "
                f"it is from {LEAST_REPETITION_PENALTY} to {MOST_REPETITION_PENALTY}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            if not -most < getattr(self, name) < most:
                yield f"{name} is {getattr(self, name)}; it is finite"
        if any(token < 0 or not -most < bias < most for token, bias in self.logit_bias):
            yield "logit_bias has a negative token id or a bias that is not finite"
        if not 0 <= (self.top_logprobs or 0) <= MAX_TOP_LOGPROBS:
            yield f"top_logprobs is {self.top_logprobs}; it is from 0 to {MAX_TOP_LOGPROBS}"
        if any(not text for text in self.stop):
            yield "a stop string is empty"
