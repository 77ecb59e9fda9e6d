"""What is written on pictures and said in clips, as words with where and when."""

from __future__ import annotations

from typing import Any

from bus.contracts import Modality
from functions.stages.pages import Page
from functions.stages.parts import Transcript
from functions.stages.pieces import Words
from functions.stages.reading import said_in, written_on


def line(text: str, *corners: tuple[float, float]) -> dict[str, Any]:
    return {"text": text, "confidence": 1.0, "box": corners}


def test_lines_stand_in_their_order_with_their_places_in_thousandths() -> None:
    lines = [line("One", (0, 0), (50, 0), (50, 20), (0, 20)), line("two", (-4, 190), (204, 180), (210, 230), (0, 205))]
    page = Page.model_validate(
        {"part": 3, "text": "One\ntwo", "lines": lines, "width": 200, "height": 200, "source": "digest"}
    )
    empty = Page(part=4, text="", width=9, height=9, source="digest")
    head = "Text in the picture, with left, top, right and bottom in thousandths:\n"
    expected = Words(Modality.IMAGE, head + '"One" at (0, 0, 250, 100)\n"two" at (0, 900, 1000, 1000)', 3)
    assert written_on([page, empty]) == {3: expected}


def test_sentences_stand_in_their_order_with_their_seconds() -> None:
    segments = [{"start_s": 0.04, "end_s": 1.25, "text": "Hello."}, {"start_s": 61.5, "end_s": 62, "text": "Bye."}]
    told = {"part": 1, "text": "Hello. Bye.", "language": "en", "seconds": 70, "segments": segments}
    silent = Transcript(part=2, text="", language="", seconds=3.0)
    head = "What is said, with the seconds:\n"
    expected = Words(Modality.AUDIO, head + '"Hello." from 0.0 to 1.2\n"Bye." from 61.5 to 62.0', 1)
    assert said_in([Transcript.model_validate(told), silent]) == {1: expected}
