"""The model's own chat template around what a message holds, which the template never sees.

Holes stand for what users wrote while the template is rendered, so that no text of theirs is ever read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from functions.stages.pieces import Markup, Piece, Words

# A space that no template writes by itself, on each side of a hole: it tells whether the template trims what it is
# given.
_EDGE = "\u2003"
_HOLE = re.compile(f"({_EDGE}?)\ue000(\\d+)\ue001({_EDGE}?)")

Fill = Callable[[int], Sequence[Piece]]
"""What belongs into a hole, by its number."""


def hole(number: int) -> str:
    """What stands in a message for content that comes later."""
    return f"{_EDGE}\ue000{number}\ue001{_EDGE}"


def filled(rendered: str, fill: Fill) -> Iterator[Piece]:
    """The pieces of a rendered template, with what belongs into its holes.

    Args:
        rendered: What the template made of messages with holes.
        fill: What belongs into them; without the space at its ends, where the template takes that away.
    """
    # Markup, and between it three members for each hole: the edge before it, its number, the edge behind it.
    parts = _HOLE.split(rendered)
    for place in range(0, len(parts), 4):
        yield Markup(parts[place])
        if place + 3 < len(parts):
            before, number, behind = parts[place + 1 : place + 4]
            yield from _trimmed(list(fill(int(number))), before=not before, behind=not behind)


def holes_in(rendered: str) -> set[int]:
    """Numbers of the holes that a template has kept."""
    return {int(number) for _, number, _ in _HOLE.findall(rendered)}


def _trimmed(pieces: list[Piece], *, before: bool, behind: bool) -> list[Piece]:
    if before:
        pieces = _stripped(pieces, lambda text: text.lstrip())
    if behind:
        pieces = _stripped(pieces[::-1], lambda text: text.rstrip())[::-1]
    return pieces


def _stripped(pieces: list[Piece], strip: Callable[[str], str]) -> list[Piece]:
    """Without the space at the beginning, of which several pieces may be made."""
    for place, piece in enumerate(pieces):
        if not isinstance(piece, Words):
            return pieces[place:]
        if text := strip(piece.text):
            return [Words(piece.modality, text, piece.part), *pieces[place + 1 :]]
    return []
