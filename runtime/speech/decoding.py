"""Whisper's decoder at work on one window: its cache, what it may write, and whether that can be believed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession
from runtime.speech import timestamps as stamps

Array = NDArray[Any]

NO_TIMESTAMPS, END = 50363, 50257

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""What a window is tried with, one after the other, until its text can be believed."""

_MOST_REPETITIVE, _LEAST_CERTAIN = 2.4, -1.0
_NEVER = -np.inf


@dataclass(frozen=True, slots=True)
class Written:
    """What one pass over a window wrote.

    Attributes:
        tokens: Words, and times where they were asked for, without the end.
        certainty: Mean logarithm of the tokens' probabilities, the end included.
        repetition: How much smaller the text gets when it is compressed; speech stays below 2.4.
    """

    tokens: list[int]
    certainty: float
    repetition: float

    @property
    def believable(self) -> bool:
        """Neither a loop nor a guess.

        Source: Radford et al. 2022, section 4.5, with the published decoder's limits.
        """
        return self.repetition <= _MOST_REPETITIVE and self.certainty >= _LEAST_CERTAIN

    @property
    def rank(self) -> tuple[bool, float]:
        """Of several that cannot be believed the best is the one that does not repeat itself, then the surest."""
        return self.repetition <= _MOST_REPETITIVE, self.certainty


@dataclass(frozen=True, slots=True)
class WritingRules:
    """What may be written.

    Attributes:
        suppress: Tokens that are never written.
        suppress_first: Tokens that are not written first.
        timestamps: Whether times are written.
        text: What words are made of tokens.
    """

    suppress: Array
    suppress_first: Array
    timestamps: bool
    text: Callable[[Sequence[int]], str]

    def apply(self, logits: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Forbid, in place, what may not follow `tokens`."""
        logits[self.suppress] = _NEVER
        logits[NO_TIMESTAMPS if self.timestamps else slice(NO_TIMESTAMPS, None)] = _NEVER
        if not tokens:
            logits[self.suppress_first] = _NEVER
        if self.timestamps:
            stamps.restrict(logits, tokens)


class Decoding:
    """The decoder's state of one window: its cache, written in place, and how far it is."""

    def __init__(self, decoder: OnnxSession, dims: Mapping[str, int], cross: Mapping[str, Array]) -> None:
        shape = (1, dims["heads"], dims["context"], dims["hidden"] // dims["heads"])
        self._context, self._at = dims["context"], 0
        self._logits = np.empty((1, dims["vocabulary"]), np.float32)
        self._last, self._total = np.zeros(1, np.int32), np.zeros((), np.int32)
        self._binding = decoder.bind()
        for name, array in cross.items():
            self._binding.input(name, array)
        for index in range(dims["layers"]):
            for kind in ("key", "value"):
                cache = np.zeros(shape, np.float32)
                self._binding.input(f"past.{kind}.{index}", cache).output(f"present.{kind}.{index}", cache)
        self._binding.input("last", self._last).input("total", self._total).output("logits", self._logits)

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self._context - self._at

    def step(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Add tokens; returns the logits of the next one, float32 (vocabulary,), valid until the next step."""
        positions = np.arange(self._at, self._at + len(tokens), dtype=np.int64)[None]
        self._at += len(tokens)
        self._last[0], self._total[...] = self._at - 1, self._at
        self._binding.input("tokens", np.asarray([tokens], np.int64)).input("positions", positions)
        self._binding.run()
        logits: NDArray[np.float32] = self._logits[0]
        return logits

    def rewind(self) -> None:
        """Forget every token."""
        self._at = 0


def write(
    decoding: Decoding,
    prompt: Sequence[int],
    rules: WritingRules,
    temperature: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> Written:
    """Write down a window once.

    Args:
        decoding: Gets the tokens; it begins anew.
        prompt: What stands before the text.
        rules: What may be written.
        temperature: 0: always the likeliest token; else drawn, the same way in every run.
        cancelled: Asked before every token; when it says yes, what there is so far is returned.
    """
    decoding.rewind()
    dice = np.random.default_rng(0)
    logits = decoding.step(prompt)
    tokens: list[int] = []
    certainty, looped = list[float](), False
    while decoding.room and not cancelled():
        rules.apply(logits, tokens)
        token = _chosen(logits, temperature, dice)
        certainty.append(float(logits[token] - log_sum(logits)))
        if token == END:
            break
        tokens.append(token)
        if (kept := without_loop(tokens)) is not None:
            tokens, looped = tokens[:kept], True
            break
        logits = decoding.step([token])
    repetition = float("inf") if looped else compression(rules.text(tokens))
    return Written(tokens, sum(certainty) / max(1, len(certainty)), repetition)


def best(tries: Iterable[Written], *, hopeless: Callable[[Written], bool]) -> Written:
    """The first that can be believed, or that shows that there is nothing to hear, else the best of all.

    Args:
        tries: Made one after the other, each only when the one before was not taken.
        hopeless: Whether another try would be a waste.
    """
    seen: list[Written] = []
    for one in tries:
        if one.believable or hopeless(one):
            return one
        seen.append(one)
    return max(seen, key=lambda one: one.rank)


def compression(text: str) -> float:
    """How much smaller a text gets by compressing it: more than 2.4 is a loop, not speech."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def log_sum(logits: NDArray[np.float32]) -> float:
    """Logarithm of the sum of the exponentials."""
    peak = float(logits.max())
    return peak + float(np.log(np.exp(logits - peak).sum()))


def without_loop(tokens: Sequence[int], *, longest: int = 24) -> int | None:
    """How many tokens to keep when the end of the text goes round in a circle; None when it does not.

    A circle is a piece of up to `longest` tokens, said so often in a row that no speaker means it: five times,
    and at least twelve tokens in all.
    """
    for length in range(1, longest + 1):
        times = max(5, -(-12 // length))
        if len(tokens) < length * times:
            continue
        piece = tokens[-length:]
        if all(tokens[-length * (turn + 1) : len(tokens) - length * turn] == piece for turn in range(1, times)):
            return len(tokens) - length * (times - 1)
    return None


def _chosen(logits: NDArray[np.float32], temperature: float, dice: np.random.Generator) -> int:
    if temperature == 0.0:
        return int(np.argmax(logits))
    # The largest of logits with Gumbel noise is a draw from their softmax.
    return int(np.argmax(logits / temperature + dice.gumbel(size=len(logits))))
