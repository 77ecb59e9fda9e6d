"""English text to the symbols that Kokoro's voices were trained on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from runtime.speech.spoken import spoken

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
    """Reads English aloud on paper, with gruut's dictionary; safe from several threads, one at a time."""

    def __init__(self) -> None:
        # gruut keeps caches of its own that were not made for several threads.
        self._lock = threading.Lock()

    def sentences(self, text: str, *, british: bool = False) -> list[str]:
        """Symbols by sentence; what English has no sound for is left out.

        Args:
            text: Anything.
            british: Symbols of British instead of American voices.
        """
        from gruut import sentences

        table = BRITISH if british else AMERICAN
        with self._lock:
            said = [list(_words(sentence, table, british)) for sentence in sentences(spoken(text), lang="en-us")]
        joined = (_joined(words) for words in said)
        return [sentence for sentence in joined if any(symbol in _VOWELS for symbol in sentence)]


def _words(sentence: object, table: dict[str, str], british: bool) -> Iterator[str]:
    for word in sentence:  # type: ignore[attr-defined]
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
