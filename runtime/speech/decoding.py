"""Whisper's decoder at work on one window: its cache, what it may write, and whether that can be believed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession
from runtime.speech import timestamps as stamps

Array = NDArray[Any]

NO_TIMESTAMPS, END = 50363, 50257

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""What a window is tried with, one after the other, until its text can be believed."""

# Where the published decoder does not believe a text, and where it gives up on a window.
_MOST_REPETITIVE, _LEAST_CERTAIN, _SILENCE = 2.4, -1.0, 0.6

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
        temperature: What a window is tried with first.
    """

    suppress: Array
    suppress_first: Array
    timestamps: bool
    text: Callable[[Sequence[int]], str]
    temperature: float = 0.0

    def apply(self, logits: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Forbid, in place, what may not follow `tokens`."""
        logits[self.suppress] = _NEVER
        logits[NO_TIMESTAMPS if self.timestamps else slice(NO_TIMESTAMPS, None)] = _NEVER
        if not tokens:
            logits[self.suppress_first] = _NEVER
        if self.timestamps:
            stamps.restrict(logits, tokens)


class Decoding:
    """The decoder's state of some windows: a cache, written in place, and how far it is, for all rows the same.

    Args:
        decoder: The graph of `runtime.graphs.whisper.decoder_graph`.
        dims: Sizes of the model.
        cross: What the encoder made of the windows, a row each.
    """

    def __init__(self, decoder: OnnxSession, dims: Mapping[str, int], cross: Mapping[str, Array]) -> None:
        self.rows = len(next(iter(cross.values())))
        shape = (self.rows, dims["heads"], dims["context"], dims["hidden"] // dims["heads"])
        self._context, self._at = dims["context"], 0
        self._logits = np.empty((self.rows, dims["vocabulary"]), np.float32)
        self._last, self._total = np.zeros(self.rows, np.int32), np.zeros((), np.int32)
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

    def step(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Add as many tokens to each row; returns the logits of the next ones, valid until the next step.

        Returns:
            float32 (row, vocabulary).
        """
        ids = np.asarray(tokens, np.int64)
        places = np.arange(self._at, self._at + ids.shape[1], dtype=np.int64)
        self._at += ids.shape[1]
        self._last[:], self._total[...] = self._at - 1, self._at
        positions = np.ascontiguousarray(np.broadcast_to(places, ids.shape))
        self._binding.input("tokens", ids).input("positions", positions)
        self._binding.run()
        return self._logits

    def rewind(self) -> None:
        """Forget every token."""
        self._at = 0


class _Row:
    """One window on its way."""

    def __init__(self, rules: WritingRules, temperature: float) -> None:
        self._rules, self._temperature = rules, temperature
        self._dice = np.random.default_rng(0)
        self._tokens: list[int] = []
        self._certainty: list[float] = []
        self._looped = self.done = False

    def add(self, logits: NDArray[np.float32]) -> int:
        """The next token of the row; its end, as often as it is asked for, once it is done."""
        if self.done:
            return END
        self._rules.apply(logits, self._tokens)
        token = _chosen(logits, self._temperature, self._dice)
        self._certainty.append(float(logits[token] - log_sum(logits)))
        if token == END:
            self.done = True
            return END
        self._tokens.append(token)
        if (kept := without_loop(self._tokens)) is not None:
            self._tokens = self._tokens[:kept]
            self._looped = self.done = True
        return token

    def written(self) -> Written:
        repetition = float("inf") if self._looped else compression(self._rules.text(self._tokens))
        return Written(self._tokens, sum(self._certainty) / max(1, len(self._certainty)), repetition)


def write(
    decoding: Decoding,
    prompts: Sequence[Sequence[int]],
    rules: WritingRules,
    temperature: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Written]:
    """Write down windows once.

    Args:
        decoding: Gets the tokens; it begins anew.
        prompts: What stands before the text, by row, as many tokens in each.
        rules: What may be written.
        temperature: 0: always the likeliest token; else drawn, the same way in every run.
        cancelled: Asked before every token; when it says yes, what there is so far is returned.
    """
    decoding.rewind()
    rows = [_Row(rules, temperature) for _ in prompts]
    logits = decoding.step(prompts)
    while decoding.room and not cancelled():
        tokens = [row.add(logits[index]) for index, row in enumerate(rows)]
        if all(row.done for row in rows):
            break
        logits = decoding.step([[token] for token in tokens])
    return [row.written() for row in rows]


def write_believably(
    decoding: Decoding,
    prompts: Sequence[Sequence[int]],
    rules: WritingRules,
    silence: Sequence[float],
    alone: Callable[[int], Decoding],
    cancelled: Callable[[], bool] = lambda: False,
) -> list[list[int]]:
    """Write down windows, each again with more chance while its text cannot be believed.

    Args:
        decoding: Of all rows.
        prompts: What stands before the text, by row, as many tokens in each.
        rules: What may be written.
        silence: How likely nobody speaks, by row.
        alone: A decoding of one row.
        cancelled: Asked before every token.

    Returns:
        Tokens by row; none where nobody speaks.
    """
    together = write(decoding, prompts, rules, rules.temperature, cancelled)
    return [
        _believed(written, quiet, partial(_again, row, prompts[row], rules, alone, cancelled), cancelled)
        for row, (written, quiet) in enumerate(zip(together, silence, strict=True))
    ]


def _again(
    row: int,
    prompt: Sequence[int],
    rules: WritingRules,
    alone: Callable[[int], Decoding],
    cancelled: Callable[[], bool],
) -> Iterator[Written]:
    decoding = alone(row)
    for temperature in (one for one in TEMPERATURES if one > rules.temperature):
        yield from write(decoding, [prompt], rules, temperature, cancelled)


def _believed(
    first: Written, silence: float, again: Callable[[], Iterator[Written]], cancelled: Callable[[], bool]
) -> list[int]:
    def nothing(written: Written) -> bool:
        """It hears nothing and does not believe what it wrote."""
        return silence > _SILENCE and written.certainty < _LEAST_CERTAIN

    def tries() -> Iterator[Written]:
        yield first
        yield from again()

    taken = best(tries(), hopeless=lambda one: nothing(one) or cancelled())
    return [] if nothing(taken) else taken.tokens


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
