"""English text to the symbols that Kokoro's voices were trained on."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bus.errors import InvalidInputError
from runtime.speech.dictionary import english
from runtime.speech.sentences import split
from runtime.speech.spoken import spoken

if TYPE_CHECKING:
    from gruut.const import Sentence
    from gruut.text_processor import TextProcessor

_PASSAGE = 1000
"""The most characters that are read at once."""

_STRESS = "ˈˌ"
_VOWELS = "AIOQWYaeiouæɑɐɒɔəɚɛɜɪʊʌᵻ"

AMERICAN = {
    "eɪ": "A", "aɪ": "I", "oʊ": "O", "aʊ": "W", "ɔɪ": "Y", "t͡ʃ": "ʧ", "d͡ʒ": "ʤ", "g": "ɡ", "r": "ɹ", "ɝ": "ɜɹ",
}  # fmt: skip
BRITISH = AMERICAN | {"oʊ": "Q", "ɑ": "ɒ", "ɔ": "ɔː", "æ": "a"}

# Words that are not stressed in a sentence, whatever the dictionary says of them alone.
_WEAK = frozenset(
    [
        "a",
        "an",
        "the",
        "and",
        "or",
        "but",
        "nor",
        "of",
        "to",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "with",
        "as",
        "is",
        "am",
        "are",
        "was",
        "were",
        "be",
        "been",
        "it",
        "its",
        "he",
        "him",
        "his",
        "she",
        "her",
        "we",
        "us",
        "our",
        "you",
        "your",
        "they",
        "them",
        "their",
        "i",
        "me",
        "my",
        "that",
        "this",
        "than",
        "if",
        "so",
        "do",
        "does",
        "has",
        "have",
        "had",
        "can",
        "could",
        "will",
        "would",
        "shall",
        "should",
        "may",
        "might",
        "must",
        "not",
        "there",
    ]
)
_MARKS = ";:,.!?"


class EnglishPhonemes:
    """Reads English aloud on paper, with gruut's dictionary; safe from several threads, one at a time.

    Args:
        lexicons: See `dictionary.english`.
    """

    def __init__(self, lexicons: Path | None = None) -> None:
        self._lexicons = lexicons
        # gruut keeps caches of its own that were not made for several threads.
        self._lock = threading.Lock()
        self._processor: TextProcessor | None = None

    def sentences(self, text: str, *, british: bool = False) -> list[str]:
        """Symbols by sentence; what English has no sound for is left out.

        Args:
            text: Anything.
            british: Symbols of British instead of American voices.

        Raises:
            InvalidInputError: A text that the dictionary's reader does not get through.
        """
        table = BRITISH if british else AMERICAN
        # The reader's time grows with the square of a text's length.
        passages = split(_sayable(spoken(text)), _PASSAGE)
        with self._lock:
            said = [list(_words(sentence, table, british)) for one in passages for sentence in self._parsed(one)]
        joined = (_joined(words) for words in said)
        return [sentence for sentence in joined if any(symbol in _VOWELS for symbol in sentence)]

    def _parsed(self, text: str) -> Iterable[Sentence]:
        if self._processor is None:
            self._processor = english(self._lexicons)
        try:
            return self._processor.sentences(*self._processor(text))
        except Exception as error:  # gruut raises whatever its number and date readers raise
            shown = text if len(text) <= 60 else text[:60] + "…"
            raise InvalidInputError(
                f"{shown!r} cannot be read aloud ({type(error).__name__}); write its numbers and dates as words"
            ) from error


def _sayable(text: str) -> str:
    """The text without signs that English has no name for: they cost the reader time and give no sound."""
    return "".join(one if one.isascii() or unicodedata.category(one) == "Sc" else " " for one in text)


def _words(sentence: Sentence, table: dict[str, str], british: bool) -> Iterator[str]:
    for word in sentence:
        phonemes = [one for one in word.phonemes or () if one not in ("|", "‖")]
        if phonemes:
            yield _symbols(phonemes, table, british, weak=word.text.lower() in _WEAK)
        else:
            yield "".join(mark for mark in word.text if mark in _MARKS)[:1]


def _symbols(phonemes: Sequence[str], table: dict[str, str], british: bool, weak: bool) -> str:
    out = []
    for index, phoneme in enumerate(phonemes):
        stress = "".join(mark for mark in phoneme if mark in _STRESS)
        sound = phoneme.lstrip(_STRESS)
        following = phonemes[index + 1].lstrip(_STRESS) if index + 1 < len(phonemes) else ""
        before_vowel = following[:1] in _VOWELS and following != ""
        out.append(("" if weak else stress) + _sound(sound, table, british, bool(stress), before_vowel))
    return "".join(out)


def _sound(sound: str, table: dict[str, str], british: bool, stressed: bool, before_vowel: bool) -> str:
    if sound == "ɚ":
        if british:
            return ("ɜː" if stressed else "ə") + ("ɹ" if before_vowel else "")
        return "ɜɹ" if stressed else "əɹ"
    if british and sound == "ɹ" and not before_vowel:
        return ""  # British voices say it before vowels only
    if british and stressed and sound in ("i", "u"):
        return sound + "ː"
    return table.get(sound, sound)


def _joined(words: Sequence[str]) -> str:
    out = ""
    for word in words:
        if not word:
            continue
        if word in _MARKS:
            out = out if not out or out[-1] in _MARKS else out + word
        else:
            out += (" " if out else "") + word
    return out
