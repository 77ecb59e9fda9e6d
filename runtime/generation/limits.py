"""What a generation engine may take: tokens of a request, requests that wait, memory, guesses."""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError


def context_tokens(manifest: ModelManifest) -> int:
    """The most tokens of a prompt and its answer together: what is served here, and never more than the graph takes."""
    longest = manifest.dims["context"]
    return min(longest, int(manifest.limits.get("context_tokens", longest)))


_repeatable = True


def use_repeatable(repeatable: bool) -> None:
    """What engines that are configured from now on do unless they are told: see `EngineConfig.repeatable`."""
    global _repeatable  # one process, one promise to its clients
    _repeatable = repeatable


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What a deployer can set.

    Attributes:
        max_waiting: Requests that may wait for a slot before others are refused.
        prefill_chunk: The most prompt tokens in one step, at least 3; fewer while others wait for their next token.
            Any number from 3 can be cut into pieces of which none is a single token, see `prefill.Prefill`.
        prefix_cache_nbytes: Memory for keys and values of earlier prompts and answers; 0: none is kept.
        speculative_tokens: The most tokens that are guessed and checked in one step while an answer is alone; 0: none.
        speculate: Whether every answer is guessed at, not only one whose request predicts it. Off: where a model's
            matrices are rounded, checking several tokens at once rounds otherwise than one after the other, and an
            answer would depend on who else was there.
        repeatable: Whether no answer depends on who else is there; it costs a lone row in 4 bits a fifth of its speed.

    Raises:
        InvalidInputError: Names every value that is out of range.
    """

    max_waiting: int = 64
    prefill_chunk: int = 512
    prefix_cache_nbytes: int = 128 * 2**20
    speculative_tokens: int = 7
    speculate: bool = False
    repeatable: bool = field(default_factory=lambda: _repeatable)

    def __post_init__(self) -> None:
        least = {"max_waiting": 0, "prefill_chunk": 3, "prefix_cache_nbytes": 0, "speculative_tokens": 0}
        problems = [
            f"{name} is {getattr(self, name)}; it is at least {smallest}"
            for name, smallest in least.items()
            if getattr(self, name) < smallest
        ]
        if problems:
            raise InvalidInputError("the generation engine's settings: " + "; ".join(problems), problems=problems)
