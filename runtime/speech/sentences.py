"""Sentences gathered into pieces that a voice says at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def pieces(sentences: Iterable[str], *, most: int, good: int) -> list[str]:
    """Sentences joined while they are short, and split where they are too long.

    Args:
        sentences: Symbols by sentence.
        most: The most symbols of a piece.
        good: Sentences are joined up to this many symbols: a lone short one sounds clipped.
    """
    out: list[str] = []
    for sentence in sentences:
        for part in split(sentence, most):
            if out and len(out[-1]) + 1 + len(part) <= good:
                out[-1] = f"{out[-1]} {part}"
            else:
                out.append(part)
    return out


def split(sentence: str, most: int) -> Iterator[str]:
    """A text in parts of at most `most`: at the ends of sentences, else at other marks, at words, or anywhere."""
    sentence = sentence.strip()
    while len(sentence) > most:
        at = _last(r"[.!?] ", sentence, most) or _last(r"[;:,] ", sentence, most)
        at = at or _last(r" ", sentence, most) or most
        yield sentence[:at].strip()
        sentence = sentence[at:].strip()
    if sentence:
        yield sentence


def _last(pattern: str, sentence: str, most: int) -> int | None:
    return max((found.end() for found in re.finditer(pattern, sentence[:most])), default=None)
