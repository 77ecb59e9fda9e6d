"""What is written on pictures, as words of a prompt."""

from __future__ import annotations

from collections.abc import Iterable

from functions.stages.pages import Page, TextLine

_SCALE = 1000


def written_on(pages: Iterable[Page]) -> dict[int, str]:
    """A sentence for each picture that has text: its lines in reading order, each with where it stands.

    Places are left, top, right and bottom in thousandths of the picture, as models of documents are trained on them.

    Args:
        pages: What was read.
    """
    return {page.part: _sentence(page) for page in pages if page.lines}


def _sentence(page: Page) -> str:
    lines = "\n".join(f'"{line.text}" at {_place(line, page)}' for line in page.lines)
    return f"Text in the picture, with left, top, right and bottom in thousandths:\n{lines}"


def _place(line: TextLine, page: Page) -> str:
    across = [x / page.width for x, _ in line.box]
    down = [y / page.height for _, y in line.box]
    edges = (min(across), min(down), max(across), max(down))
    return "({})".format(", ".join(str(round(min(max(edge, 0.0), 1.0) * _SCALE)) for edge in edges))
