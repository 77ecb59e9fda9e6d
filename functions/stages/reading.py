"""What is written on pictures and said in clips, as words of a prompt, with where and when."""

from __future__ import annotations

from collections.abc import Iterable

from bus.contracts import Modality
from functions.stages.pages import Page, TextLine
from functions.stages.parts import Transcript
from functions.stages.pieces import Words

_SCALE = 1000


def written_on(pages: Iterable[Page]) -> dict[int, Words]:
    """A sentence for each picture that has text: its lines in reading order, each with where it stands.

    Places are left, top, right and bottom in thousandths of the picture, as models of documents are trained on them.

    Args:
        pages: What was read.
    """
    return {page.part: Words(Modality.IMAGE, _page(page), page.part) for page in pages if page.lines}


def said_in(transcripts: Iterable[Transcript]) -> dict[int, Words]:
    """A sentence for each clip or film in which somebody speaks: what was said, and from which second to which.

    Args:
        transcripts: What was heard.
    """
    return {one.part: Words(Modality.AUDIO, _transcript(one), one.part) for one in transcripts if one.segments}


def _page(page: Page) -> str:
    lines = "\n".join(f'"{line.text}" at {_place(line, page)}' for line in page.lines)
    return f"Text in the picture, with left, top, right and bottom in thousandths:\n{lines}"


def _transcript(transcript: Transcript) -> str:
    lines = "\n".join(f'"{one.text}" from {one.start_s:.1f} to {one.end_s:.1f}' for one in transcript.segments)
    return f"What is said, with the seconds:\n{lines}"


def _place(line: TextLine, page: Page) -> str:
    across = [x / page.width for x, _ in line.box]
    down = [y / page.height for _, y in line.box]
    edges = (min(across), min(down), max(across), max(down))
    return "({})".format(", ".join(str(round(min(max(edge, 0.0), 1.0) * _SCALE)) for edge in edges))
