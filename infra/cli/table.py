"""Tables as plain text: columns line up, nothing is cut off, every line can be piped into grep."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import click


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print what `table_lines` makes."""
    for line in table_lines(titles, rows):
        click.echo(line)


def table_lines(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows under titles; columns whose title ends in `ms`, `MB` or ` s` are aligned to the right."""
    lines = [tuple(titles), *(tuple(row) for row in rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(titles))]
    return [
        "  ".join(_cell(text, width, title) for text, width, title in zip(line, widths, titles, strict=True)).rstrip()
        for line in lines
    ]


def _cell(text: str, width: int, title: str) -> str:
    padding = " " * (width - _width(text))
    return padding + text if title.endswith(("ms", "MB", " s")) else text + padding


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide
