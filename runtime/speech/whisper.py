"""Whisper: windows of sound to text, on an encoder and a decoder with a cache in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.engines.cores import threads_for
from runtime.engines.identity import content_digest
from runtime.engines.onnx import OnnxSession
from runtime.residency.shared import SharedModels
from runtime.speech import timestamps as stamps
from runtime.speech.alignment import token_starts
from runtime.speech.decoding import END, NO_TIMESTAMPS, Decoding, WritingRules, log_sum, write_believably
from runtime.speech.mel import HOP, SAMPLE_RATE_HZ, log_mel
from runtime.speech.words import TimedText, split_words, timed_words
from runtime.text.vocabulary import read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from bus.contracts import ModelManifest
    from runtime.repository import Repository

Array = NDArray[Any]

START, TRANSCRIBE, PREVIOUS, NO_SPEECH = 50258, 50359, 50361, 50362

_INAUDIBLE = 1e-4
"""Quieter than this, 80 dB below full scale, there is nothing to hear; the model would write "you"."""

_STEPS = 6
"""Windows are heard in steps of a sixth of the longest, 5 s, and two at least: the model was trained on sound padded
with silence to 30 s and needs some of it, but not all, and what it does not hear it need not compute."""

_SILENCE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What was said in one window.

    Attributes:
        text: The words.
        language: ISO 639 code, as Whisper names it; empty where there was no sound to tell it from.
        segments: (start, end, words) in seconds from the start of the window; the whole window when no time
            stamps were asked for.
        words: (start, end, word) in seconds from the start of the window, where they were asked for.
    """

    text: str
    language: str
    segments: tuple[TimedText, ...]
    words: tuple[TimedText, ...] = ()


class Whisper:
    """A loaded Whisper model; safe from several threads, each call has its own cache."""

    def __init__(
        self,
        encoder: OnnxSession,
        decoder: OnnxSession,
        tokenizer: Tokenizer,
        manifest: ModelManifest,
        aligner: Callable[[], OnnxSession] | None = None,
    ) -> None:
        self.ref = manifest.ref
        self._encoder, self._decoder, self._tokenizer = encoder, decoder, tokenizer
        self._open_aligner, self._opening = aligner, threading.Lock()
        self._aligner: OnnxSession | None = None
        self._dims, parameters = manifest.dims, manifest.parameters
        self._suppress = np.asarray(parameters["suppress"])
        self._suppress_first = np.asarray(parameters["suppress_first"])
        names = {token: str(tokenizer.id_to_token(token)).strip("<|>") for token in parameters["languages"]}
        self._languages = {token: name for token, name in names.items() if name}
        self._codes = {name: token for token, name in self._languages.items()}

    @classmethod
    def load(cls, repository: Repository, name: str = "whisper-base", *, threads: int = 0) -> Whisper:
        """An installed model of the family `whisper`; functions of one process share it.

        Args:
            repository: Where it is.
            name: Its id or alias.
            threads: Threads of one run; 0: every core.

        Raises:
            ModelNotFoundError: It is not installed.
            ModelCorruptError: Its files are damaged.
        """
        manifest = repository.resolve(name)
        key = (repository.folder(manifest), content_digest(manifest), threads_for(threads))
        return _shared.get(key, lambda: cls._opened(repository, manifest, threads))

    @classmethod
    def _opened(cls, repository: Repository, manifest: ModelManifest, threads: int) -> Whisper:
        # No spinning: the speech worker shares its cores with workers that have work while it waits.
        opened = partial(OnnxSession, threads=threads, spin=False)
        encoder, decoder, words = (
            repository.file(manifest, path) for path in ("encoder.onnx", "decoder.onnx", "tokenizer.json")
        )
        # Times of words are seldom asked for; what they need is opened when they are.
        known = any(file.path == "alignment.onnx" for file in manifest.files)
        aligner = (lambda: opened(repository.file(manifest, "alignment.onnx"))) if known else None
        with ThreadPoolExecutor(1, thread_name_prefix="omnibus-load") as aside:
            second = aside.submit(opened, decoder)
            return cls(opened(encoder), second.result(), read_tokenizer(words), manifest, aligner)

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
        words: bool = False,
        prompt: str = "",
        temperature: float = 0.0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Heard:
        """Write down one window.

        Args:
            samples: float32 (sample,), mono, 16 kHz, at most `window_samples`.
            language: Code of the language; None: listen first.
            timestamps: Whether to say when each sentence was said.
            words: Whether to say when each word was said.
            prompt: Text that came before, or that shows how names are written; its end is used.
            temperature: Of the first try, in [0, 1]; 0: the likeliest words. Later tries are always warmer.
            cancelled: Asked before every token; when it says yes, what there is so far is returned.

        Raises:
            InvalidInputError: An unknown language, too many samples or such that are no sound, or words of a model that
                has no times for them.
        """
        return self.transcribe_many(
            [samples],
            language=language,
            timestamps=timestamps,
            words=words,
            prompt=prompt,
            temperature=temperature,
            cancelled=cancelled,
        )[0]

    def transcribe_many(
        self,
        windows: Sequence[NDArray[np.float32]],
        *,
        language: str | None = None,
        timestamps: bool = False,
        words: bool = False,
        prompt: str = "",
        temperature: float = 0.0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Heard]:
        """Write down several windows together, each as `transcribe` does alone.

        All are heard as long as the longest one needs, and decoded until the last one ends: on a processor with few
        cores that saves a tenth at best, so it is worth it where a step costs the same for many rows.
        """
        for samples in windows:
            self._check(samples, language, words)
        audible = [index for index, samples in enumerate(windows) if np.abs(samples).max(initial=0.0) >= _INAUDIBLE]
        heard = [Heard("", language or "", ())] * len(windows)
        if not audible:
            return heard
        cross = self._listened([windows[index] for index in audible])
        found = self._written(cross, language, timestamps, prompt, temperature, cancelled)
        for row, (index, (tokens, spoken)) in enumerate(zip(audible, found, strict=True)):
            heard[index] = self._heard(tokens, spoken, len(windows[index]), _row(cross, row) if words else None)
        return heard

    def check_language(self, language: str | None) -> None:
        """Refuse a language that the model does not know; None is fine.

        Raises:
            InvalidInputError: Names those that it knows.
        """
        if language is not None and language not in self._codes:
            known = ", ".join(sorted(self._codes))
            raise InvalidInputError(f"language {language!r} is not one of {known}", param="language")

    def _check(self, samples: NDArray[np.float32], language: str | None, words: bool) -> None:
        self.check_language(language)
        if samples.ndim != 1 or samples.dtype != np.float32 or not np.isfinite(samples).all():
            raise InvalidInputError(
                f"sound is finite float32 (sample,), not {samples.dtype} {samples.shape}"
                + (" with values that are no numbers" if samples.dtype.kind == "f" else "")
            )
        if len(samples) > self.window_samples:
            raise InvalidInputError(f"{len(samples)} samples are more than the window of {self.window_samples}")
        if words and self._open_aligner is None:
            raise InvalidInputError(f"model {self.ref} does not know when words are said; ask for segments")

    def _listened(self, windows: Sequence[NDArray[np.float32]]) -> Mapping[str, Array]:
        step = self._dims["frames"] // _STEPS
        longest_s = max(len(samples) for samples in windows) / SAMPLE_RATE_HZ
        needed = (longest_s + _SILENCE_AFTER_S) * SAMPLE_RATE_HZ / (2 * HOP * step)
        frames = step * min(_STEPS, max(2, int(np.ceil(needed))))
        mels = np.stack([log_mel(samples, frames=2 * frames, mels=self._dims["mels"]) for samples in windows])
        return dict(zip(self._encoder.outputs, self._encoder.run({"mel": mels}), strict=True))

    def _written(
        self,
        cross: Mapping[str, Array],
        language: str | None,
        timestamps: bool,
        prompt: str,
        temperature: float,
        cancelled: Callable[[], bool],
    ) -> list[tuple[list[int], int]]:
        """Tokens of the texts, none where nobody speaks, and the tokens of the languages."""
        decoding = Decoding(self._decoder, self._dims, cross)
        first = decoding.step([[START]] * decoding.rows)
        silence = [float(np.exp(row[NO_SPEECH] - log_sum(row))) for row in first]
        spoken = [self._language(row) if language is None else self._codes[language] for row in first]
        end = [TRANSCRIBE] if timestamps else [TRANSCRIBE, NO_TIMESTAMPS]
        begins = [[*self._previous(prompt), START, one, *end] for one in spoken]
        rules = WritingRules(self._suppress, self._suppress_first, timestamps, self._text, temperature)
        texts = write_believably(
            decoding,
            begins,
            rules,
            silence,
            lambda row: Decoding(self._decoder, self._dims, _row(cross, row)),
            cancelled,
        )
        return list(zip(texts, spoken, strict=True))

    def _heard(self, tokens: list[int], spoken: int, samples: int, cross: Mapping[str, Array] | None) -> Heard:
        seconds = samples / SAMPLE_RATE_HZ
        said = [(start_s, end_s, self._text(part)) for start_s, end_s, part in stamps.segments(tokens, seconds)]
        text = [token for token in tokens if token < END]
        return Heard(
            self._text(text),
            self._languages[spoken],
            tuple(segment for segment in said if segment[2]),
            self._words(text, spoken, cross, samples) if text and cross is not None else (),
        )

    def _words(self, text: list[int], spoken: int, cross: Mapping[str, Array], samples: int) -> tuple[TimedText, ...]:
        looks = self._alignment()
        tokens = np.array([[START, spoken, TRANSCRIBE, NO_TIMESTAMPS, *text]], np.int64)
        inputs = {name: cross[name] for name in looks.inputs if name != "tokens"}
        (scores,) = looks.run({"tokens": tokens, **inputs})
        # The token before a word decides where the word is looked for.
        starts = token_starts(scores[0, :, 3:], -(-samples // (2 * HOP)))
        found = split_words(text, self._raw, self._languages[spoken])
        return timed_words(found, starts, samples / SAMPLE_RATE_HZ)

    def _alignment(self) -> OnnxSession:
        with self._opening:
            if self._aligner is None:
                assert self._open_aligner is not None
                self._aligner = self._open_aligner()
            return self._aligner

    def _previous(self, prompt: str) -> list[int]:
        if not prompt.strip():
            return []
        tokens: list[int] = self._tokenizer.encode(f" {prompt.strip()}", add_special_tokens=False).ids
        # Half of the context is for the text; a prompt cannot forge control tokens.
        return [PREVIOUS, *[token for token in tokens if token < END][-(self._dims["context"] // 2 - 1) :]]

    def _text(self, tokens: Sequence[int]) -> str:
        return self._raw([token for token in tokens if token < END]).strip()

    def _raw(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _language(self, logits: NDArray[np.float32]) -> int:
        candidates = np.fromiter(self._languages, np.int64)
        return int(candidates[np.argmax(logits[candidates])])


_shared: SharedModels[Whisper] = SharedModels()


def _row(cross: Mapping[str, Array], row: int) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array[row : row + 1]) for name, array in cross.items()}
