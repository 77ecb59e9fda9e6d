"""Sentences gathered into pieces that a voice says at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def pieces(sentences: Iterable[str], *, most: int, good: int, first: int | None = None) -> list[str]:
    """Sentences joined while they are short, and split where they are too long.

    Args:
        sentences: Symbols by sentence.
        most: The most symbols of a piece.
        good: Sentences are joined up to this many symbols: a lone short one sounds clipped.
        first: Where the first piece shall be heard early: its symbols, about; the next ones grow from there, each half
            longer than the one before, so that it is ready before the one before has been heard.
    """
    out: list[str] = []
    limit = good if first is None else min(good, first)
    for sentence in sentences:
        # A part without marks is cut at a word where it is far longer than what is waited for.
        for part in split(sentence, most) if limit >= good else _clauses(sentence, limit, min(most, 2 * limit)):
            if out and len(out[-1]) + 1 + len(part) <= limit:
                out[-1] = f"{out[-1]} {part}"
                continue
            if out:
                limit = min(good, limit * 3 // 2)
            out.append(part)
    return out


def _clauses(sentence: str, good: int, most: int) -> Iterator[str]:
    """A sentence in parts at its marks, each as long as `good` allows but no shorter than half of it."""
    held = ""
    for clause in re.findall(r".+?(?:[;:,.!?]+(?:\s+|$)|$)", sentence.strip()):
        if held and len(held) >= good // 2 and len(held) + len(clause) > good:
            yield from split(held, most)
            held = ""
        held += clause
    yield from split(held, most)


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
