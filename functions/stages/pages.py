"""The contracts of text on pictures."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract


class TextLine(Contract):
    """One line of text."""

    text: str
    confidence: float = Field(ge=0, le=1)
    box: tuple[tuple[float, float], ...] = Field(
        description="Top left, top right, bottom right, bottom left: x and y in pixels of the upright picture."
    )


class Page(Contract):
    """The text on one picture."""

    part: int = Field(ge=0)
    text: str = Field(description="All lines in reading order, one row a line.")
    lines: tuple[TextLine, ...] = ()
    width: int = Field(gt=0, description="Of the upright picture, in pixels.")
    height: int = Field(gt=0)
    source: str = Field(description="Digest of the media.")
