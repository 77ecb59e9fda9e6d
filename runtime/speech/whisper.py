"""Whisper: windows of sound to text, greedily, on an encoder and a decoder with a cache in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.engines.onnx import OnnxSession
from runtime.speech import timestamps as stamps
from runtime.speech.mel import HOP, SAMPLE_RATE_HZ, log_mel

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bus.contracts import ModelManifest
    from runtime.repository import Repository

Array = NDArray[Any]

START, TRANSCRIBE, NO_SPEECH, NO_TIMESTAMPS, END = 50258, 50359, 50362, 50363, 50257
_NEVER = -np.inf

# Where the published decoder gives up on a window, too.
_SILENCE, _CERTAINTY = 0.6, -1.0

_HALF_WINDOW = 0.43
"""Clips up to this share of the window (13 s) are heard in a window of half the length, at half the cost: the
model was trained on windows padded with silence and needs some of it, but not all."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What was said in one window.

    Attributes:
        text: The words.
        language: ISO 639 code, as Whisper names it.
        segments: (start, end, words) in seconds from the start of the window; the whole window when no time
            stamps were asked for.
    """

    text: str
    language: str
    segments: tuple[tuple[float, float, str], ...]


class Whisper:
    """A loaded Whisper model; safe from several threads, each call has its own cache."""

    def __init__(
        self, encoder: OnnxSession, decoder: OnnxSession, tokenizer: Tokenizer, manifest: ModelManifest
    ) -> None:
        self.ref = manifest.ref
        self._encoder, self._decoder, self._tokenizer = encoder, decoder, tokenizer
        self._dims, parameters = manifest.dims, manifest.parameters
        self._suppress = np.asarray(parameters["suppress"])
        self._suppress_first = np.asarray(parameters["suppress_first"])
        names = {token: str(tokenizer.id_to_token(token)).strip("<|>") for token in parameters["languages"]}
        self._languages = {token: name for token, name in names.items() if name}
        self._codes = {name: token for token, name in self._languages.items()}

    @classmethod
    def load(cls, repository: Repository, name: str = "whisper-base", *, threads: int = 0) -> Self:
        """An installed model of the family `whisper`.

        Args:
            repository: Where it is.
            name: Its id or alias.
            threads: Threads of one run; 0: every core.

        Raises:
            ModelNotFoundError: It is not installed.
            ModelCorruptError: Its files are damaged.
        """
        from tokenizers import Tokenizer

        manifest = repository.resolve(name)
        encoder, decoder, words = (
            repository.file(manifest, path) for path in ("encoder.onnx", "decoder.onnx", "tokenizer.json")
        )
        # No spinning: the speech worker shares its cores with workers that have work while it waits.
        hear, write = (OnnxSession(path, threads=threads, spin=False) for path in (encoder, decoder))
        return cls(hear, write, Tokenizer.from_file(str(words)), manifest)

    @property
    def window_samples(self) -> int:
        """The most samples of one window: 30 seconds."""
        return 2 * self._dims["frames"] * HOP

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it knows."""
        return tuple(self._codes)

    def transcribe(
        self,
        samples: NDArray[np.float32],
        *,
        language: str | None = None,
        timestamps: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Heard:
        """Write down one window.

        Args:
            samples: float32 (sample,), mono, 16 kHz, at most `window_samples`.
            language: Code of the language; None: listen first.
            timestamps: Whether to say when each sentence was said.
            cancelled: Asked before every token; when it says yes, what there is so far is returned.

        Raises:
            InvalidInputError: An unknown language, or too many samples.
        """
        self.check_language(language)
        if len(samples) > self.window_samples:
            raise InvalidInputError(f"{len(samples)} samples are more than the window of {self.window_samples}")
        frames = self._dims["frames"] // (2 if len(samples) <= self.window_samples * _HALF_WINDOW else 1)
        mel = log_mel(samples, frames=2 * frames, mels=self._dims["mels"])
        cross = dict(zip(self._encoder.outputs, self._encoder.run({"mel": mel[None]}), strict=True))
        decoding = _Decoding(self._decoder, self._dims, cross)
        first = decoding.step([START])
        decoding.rewind()
        silence = float(np.exp(first[NO_SPEECH] - _log_sum(first)))
        spoken = self._language(first) if language is None else self._codes[language]
        tokens, certainty = self._decode(decoding, spoken, timestamps, cancelled)
        if silence > _SILENCE and certainty < _CERTAINTY:
            tokens = []  # it hears nothing and does not believe what it wrote
        seconds = len(samples) / SAMPLE_RATE_HZ
        said = [(start_s, end_s, self._words(words)) for start_s, end_s, words in stamps.segments(tokens, seconds)]
        return Heard(
            self._words([token for token in tokens if token < END]),
            self._languages[spoken],
            tuple(segment for segment in said if segment[2]),
        )

    def check_language(self, language: str | None) -> None:
        """Refuse a language that the model does not know; None is fine.

        Raises:
            InvalidInputError: Names those that it knows.
        """
        if language is not None and language not in self._codes:
            raise InvalidInputError(f"language {language!r} is not one of {', '.join(sorted(self._codes))}")

    def _words(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True).strip()

    def _language(self, logits: NDArray[np.float32]) -> int:
        candidates = np.fromiter(self._languages, np.int64)
        return int(candidates[np.argmax(logits[candidates])])

    def _decode(
        self, decoding: _Decoding, spoken: int, timestamps: bool, cancelled: Callable[[], bool]
    ) -> tuple[list[int], float]:
        """The tokens, and the mean logarithm of their probabilities."""
        logits = decoding.step([START, spoken, TRANSCRIBE, *([] if timestamps else [NO_TIMESTAMPS])])
        tokens: list[int] = []
        certainty: list[float] = [0.0]
        while decoding.room and not cancelled():
            logits[self._suppress] = _NEVER
            logits[NO_TIMESTAMPS if timestamps else slice(NO_TIMESTAMPS, None)] = _NEVER
            if not tokens:
                logits[self._suppress_first] = _NEVER
            if timestamps:
                stamps.restrict(logits, tokens)
            token = int(np.argmax(logits))
            certainty.append(float(logits[token] - _log_sum(logits)))
            if token == END:
                break
            tokens.append(token)
            if (kept := without_loop(tokens)) is not None:
                tokens = tokens[:kept]
                break
            logits = decoding.step([token])
        return tokens, sum(certainty) / max(1, len(certainty) - 1)


class _Decoding:
    """The decoder's state of one window: its cache, written in place, and how far it is."""

    def __init__(self, decoder: OnnxSession, dims: dict[str, int], cross: dict[str, Array]) -> None:
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


def _log_sum(logits: NDArray[np.float32]) -> float:
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
