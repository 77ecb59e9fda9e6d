"""Change logits by what came before and by what the caller wants, for all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.generation.sampling import SamplingConfig

Floats = NDArray[np.float32]


class SeenTokens:
    """The tokens of a prompt and how often each is in the answer.

    Args:
        prompt: int32 `(token,)`; negative ones stand for media and count as none.
    """

    def __init__(self, prompt: NDArray[np.int32]) -> None:
        self._counts: dict[int, int] = dict.fromkeys(np.unique(prompt[prompt >= 0]).tolist(), 0)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, token: int) -> None:
        """One more token of the answer."""
        self._counts[token] = self._counts.get(token, 0) + 1

    def tokens(self) -> list[int]:
        """Every token that was seen, once."""
        return list(self._counts)

    def counts(self) -> list[int]:
        """How often each of `tokens` is in the answer."""
        return list(self._counts.values())


def penalise(logits: Floats, rows: Sequence[tuple[int, SamplingConfig, SeenTokens]]) -> None:
    """Apply the repetition, presence and frequency penalties in place.

    Args:
        logits: float32 `(row, vocabulary)`.
        rows: The rows that have penalties, each once.
    """
    sizes = [len(seen) for _, _, seen in rows]
    places = np.repeat([row for row, _, _ in rows], sizes)
    tokens = np.array([token for _, _, seen in rows for token in seen.tokens()], np.intp)
    counts = np.array([count for _, _, seen in rows for count in seen.counts()], np.float32)
    repetition, presence, frequency = (
        np.repeat(np.array([getattr(config, name) for _, config, _ in rows], np.float32), sizes)
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")
    )
    values = logits[places, tokens]
    values = np.where(values > 0, values / repetition, values * repetition)
    logits[places, tokens] = values - presence * (counts > 0) - frequency * counts


def add_bias(logits: Floats, rows: Sequence[tuple[int, Sequence[tuple[int, float]]]]) -> None:
    """Add biases in place.

    Args:
        logits: float32 `(row, vocabulary)`.
        rows: Rows, and the token ids with their biases.
    """
    places = np.array([row for row, biases in rows for _ in biases], np.intp)
    tokens = np.array([token for _, biases in rows for token, _ in biases], np.intp)
    np.add.at(logits, (places, tokens), np.array([bias for _, biases in rows for _, bias in biases], np.float32))
