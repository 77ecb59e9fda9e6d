"""Words out of tokens, with the times when they were said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

TimedText = tuple[float, float, str]
"""(start, end, text), in seconds."""

_UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_OPENING = "\"'“¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"
_STOPS = frozenset(".。!！?？")
_LONGEST_S = 0.7


def split_words(tokens: Sequence[int], decode: Callable[[Sequence[int]], str], language: str) -> list[tuple[str, int]]:
    """Tokens as (word, how many tokens), blanks before the words kept and marks put to the words that they belong to.

    Args:
        tokens: Of a text, without times.
        decode: Tokens to text; half a character becomes U+FFFD.
        language: Code; some are written without blanks.
    """
    pieces = _characters(tokens, decode)
    if language in _UNSPACED:
        return _with_marks(pieces)
    words: list[tuple[str, int]] = []
    for text, count in pieces:
        if words and not text.startswith(" "):
            words[-1] = (words[-1][0] + text, words[-1][1] + count)
        else:
            words.append((text, count))
    return _with_marks(words)


def joined(words: Iterable[str], language: str) -> str:
    """Words as a text, with blanks between them where the language is written so."""
    return ("" if language in _UNSPACED else " ").join(words)


def timed_words(words: Iterable[tuple[str, int]], starts: NDArray[np.float64], seconds: float) -> tuple[TimedText, ...]:
    """Words with when they were said.

    Args:
        words: As `split_words` gives them.
        starts: When each token begins, and after them the end of the text; float64 (token + 1,), in seconds.
        seconds: Length of the window.
    """
    found, at = [], 0
    for text, count in words:
        start_s, end_s = float(starts[at]), float(starts[at + count])
        found.append((min(start_s, seconds), min(end_s, seconds), text.strip()))
        at += count
    return tuple(_shortened(found))


def _shortened(words: list[TimedText]) -> list[TimedText]:
    """Without the pauses that the gaze spends on the words around the end of a sentence, and on the first one.

    Source: `add_word_timestamps` of OpenAI's Whisper.
    """
    lengths = [end_s - start_s for start_s, end_s, _ in words if end_s > start_s]
    longest_s = 2 * min(_LONGEST_S, median(lengths)) if lengths else 0.0
    out: list[TimedText] = []
    for start_s, end_s, text in words:
        if end_s - start_s > longest_s > 0:
            if not out or out[-1][2][-1:] in _STOPS:
                start_s = end_s - longest_s
            elif text[-1:] in _STOPS:
                end_s = start_s + longest_s
        out.append((round(start_s, 3), round(end_s, 3), text))
    return [one for one in out if one[2]]


def _characters(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[tuple[str, int]]:
    """The shortest runs of tokens that are whole characters."""
    found: list[tuple[str, int]] = []
    begun = 0
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[begun:end])
        if "\ufffd" not in text or end == len(tokens):
            found.append((text, end - begun))
            begun = end
    return found


def _with_marks(words: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Opening marks joined with the word that follows, closing ones with the word before."""
    back: list[tuple[str, int]] = []
    for text, count in words:
        if back and text and all(one in _CLOSING for one in text):
            back[-1] = (back[-1][0] + text, back[-1][1] + count)
        else:
            back.append((text, count))
    out: list[tuple[str, int]] = []
    for text, count in back:
        previous = out[-1][0] if out else ""
        if previous.startswith(" ") and previous.strip() and all(one in _OPENING for one in previous.strip()):
            out[-1] = (previous + text.strip(), out[-1][1] + count)
        else:
            out.append((text, count))
    return out
