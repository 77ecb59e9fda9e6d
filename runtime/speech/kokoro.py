"""Kokoro: phoneme symbols and a voice to sound."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError, NothingToSayError
from runtime.engines.onnx import OnnxSession
from runtime.repository.location import LEXICONS
from runtime.speech.phonemes import EnglishPhonemes
from runtime.speech.sentences import pieces

if TYPE_CHECKING:
    from pathlib import Path

    from runtime.repository import Repository

SAMPLE_RATE_HZ = 24_000
MOST_TOKENS = 510
"""The model's limit for one run."""

_LONGEST_TOKENS, _GOOD_TOKENS, _FIRST_TOKENS = 255, 160, 48
"""Of one piece, said at the voice's own speed: about fifteen, ten and three seconds. A second of sound takes
24 MB while it is made, so what is said slowly is cut into shorter pieces."""

_STYLE = 256


class Kokoro:
    """A loaded Kokoro model with its voices; safe from several threads.

    Args:
        session: The model.
        symbols: Token numbers by phoneme symbol.
        voices: Folder of `<voice>.bin`.
        phonemes: Reads texts; None: with a dictionary of its own.
    """

    def __init__(
        self, session: OnnxSession, symbols: dict[str, int], voices: Path, phonemes: EnglishPhonemes | None = None
    ) -> None:
        self._session, self._symbols, self._folder = session, symbols, voices
        self._phonemes = phonemes or EnglishPhonemes()
        self._styles: dict[str, NDArray[np.float32]] = {}
        self.voices = tuple(sorted(path.stem for path in voices.glob("*.bin")))

    @classmethod
    def load(cls, repository: Repository, name: str = "kokoro-82m", *, threads: int = 0) -> Self:
        """The installed model.

        Args:
            repository: Where it is.
            name: Its id or alias.
            threads: Threads of one run; 0: every core.

        Raises:
            ModelNotFoundError: It is not installed.
            ModelCorruptError: Its files are damaged.
        """
        manifest = repository.resolve(name)
        symbols = json.loads(repository.file(manifest, "vocab.json").read_text(encoding="utf-8"))["vocab"]
        path, phonemes = repository.file(manifest, "model.onnx"), EnglishPhonemes(repository.root / LEXICONS)
        with ThreadPoolExecutor(1, thread_name_prefix="omnibus-load") as aside:
            # A session opens without the interpreter, which reads the dictionary meanwhile.
            reading = aside.submit(phonemes.sentences, "ready")
            # No spinning: the speech worker shares its cores with workers that have work while it waits.
            session = OnnxSession(path, threads=threads, spin=False, shrink=True)
            reading.result()
        return cls(session, symbols, repository.folder(manifest) / "voices", phonemes)

    def plan(self, text: str, voice: str, *, speed: float = 1.0, early: bool = False) -> list[str]:
        """The text as pieces of symbols, each said in one run.

        Args:
            text: English.
            voice: One of `voices`.
            speed: What `say` will be told: slow speech is planned in shorter pieces.
            early: Whether somebody waits for the first piece: it is short then, and the next ones grow.

        Raises:
            InvalidInputError: An unknown voice.
            NothingToSayError: Nothing in the text can be said.
        """
        if voice not in self.voices:
            names = ", ".join(self.voices)
            raise InvalidInputError(f"voice {voice!r} is not one of {names}", voice=voice, param="voice")
        # The names begin with the accent: a American, b British.
        sentences = self._phonemes.sentences(text, british=voice.startswith("b"))
        known = ("".join(one for one in sentence if one in self._symbols) for sentence in sentences)
        slow = min(1.0, speed)
        most, good, first = (max(1, int(slow * tokens)) for tokens in (_LONGEST_TOKENS, _GOOD_TOKENS, _FIRST_TOKENS))
        found = pieces(known, most=most, good=good, first=first if early else None)
        if not found:
            shown = text if len(text) <= 60 else text[:60] + "…"
            raise NothingToSayError(f"nothing in {shown!r} can be said by an English voice; send English text")
        return found

    def say(self, symbols: str, voice: str, speed: float = 1.0) -> NDArray[np.float32]:
        """One piece of `plan` as sound.

        Args:
            symbols: At most 510.
            voice: One of `voices`.
            speed: 1 is the voice's own.

        Returns:
            float32 (sample,), mono, 24 kHz, in about [-1, 1].
        """
        tokens = [self._symbols[symbol] for symbol in symbols]
        inputs: dict[str, NDArray[Any]] = {
            # Padding on both sides; the style depends on how long the text is.
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": self._style(voice)[min(len(tokens), MOST_TOKENS) - 1][None],
            "speed": np.array([speed], np.float32),
        }
        (sound,) = self._session.run(inputs)
        return np.asarray(sound, np.float32).ravel()

    def _style(self, voice: str) -> NDArray[np.float32]:
        if voice not in self._styles:
            self._styles[voice] = np.fromfile(self._folder / f"{voice}.bin", np.float32).reshape(-1, _STYLE)
        return self._styles[voice]
