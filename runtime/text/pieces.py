"""Pieces of a text joined as their script is written: Chinese and Japanese have no blanks between words."""

from __future__ import annotations

from collections.abc import Iterable

_UNSPACED = (
    (0x2E80, 0x312F),  # radicals, marks, kana, bopomofo
    (0x3190, 0x9FFF),  # annotations, kana extensions, ideographs
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0xFE30, 0xFE4F),  # vertical marks
    (0xFF01, 0xFF9F),  # full-width letters and marks, half-width kana
    (0x20000, 0x3FFFF),  # ideographs of the higher planes
)
"""Code points of scripts that are written without blanks.

Source: The Unicode Standard, Blocks.txt. Korean, in blocks of its own, has blanks.
"""


def join_pieces(pieces: Iterable[str]) -> str:
    """Pieces as one text: a blank between two of them, unless either side is written without; no empty ones."""
    text = ""
    for piece in pieces:
        text += joint(text, piece) + piece
    return text


def joint(before: str, after: str) -> str:
    """What stands between two pieces: a blank or nothing."""
    if not before or not after or _is_unspaced(before[-1]) or _is_unspaced(after[0]):
        return ""
    return " "


def _is_unspaced(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in _UNSPACED)
