"""From maps and probabilities to boxes and words."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from runtime.vision.regions import Rectangle
from runtime.vision.text_detection import DetectionConfig, text_boxes
from runtime.vision.text_reader import Line, cut_out, rows
from runtime.vision.text_recognition import collapse


def steps(*classes: int, certainty: float = 0.8) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    out = np.full((len(classes), 4), (1 - certainty) / 3, np.float32)
    out[np.arange(len(classes)), classes] = certainty
    return out


@pytest.mark.parametrize(
    ("classes", "text"),
    [((1, 1, 0, 1, 2), "aab"), ((0, 0, 3, 3, 3), "c"), ((1, 2, 2, 0, 2), "abb"), ((0, 0), "")],
)
def test_repeats_are_one_and_blanks_are_none(classes: tuple[int, ...], text: str) -> None:
    assert collapse(steps(*classes), "abc")[0] == text


def test_confidence_is_the_mean_over_what_was_read() -> None:
    probabilities = np.concatenate([steps(1, certainty=0.9), steps(0, certainty=0.4), steps(2, certainty=0.7)])
    assert collapse(probabilities, "abc")[1] == pytest.approx(0.8)
    assert collapse(steps(0, 0), "abc") == ("", 0.0)


def drawn_map(*rectangles: Rectangle, level: float = 0.9) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    image = Image.new("L", (200, 100))
    for rectangle in rectangles:
        ImageDraw.Draw(image).polygon([tuple(point) for point in rectangle.corners()], fill=round(level * 255))
    return (np.asarray(image) / 255).astype(np.float32)


def test_a_region_becomes_a_box_that_grows_by_its_area_over_its_perimeter() -> None:
    (box,) = text_boxes(drawn_map(Rectangle((100, 50), 80, 10, 0.0)), DetectionConfig())
    distance = 80 * 10 * 1.6 / (2 * (80 + 10))
    expected = Rectangle((100, 50), 80, 10, 0.0).grown(distance).corners()
    assert np.abs(box - expected).max() < 2.5


def test_slanted_text_keeps_its_angle() -> None:
    (box,) = text_boxes(drawn_map(Rectangle((100, 50), 90, 12, 0.2)), DetectionConfig())
    angle = np.arctan2(*(box[1] - box[0])[::-1])
    assert angle == pytest.approx(0.2, abs=0.03)


def test_faint_and_thin_regions_are_dropped() -> None:
    faint = drawn_map(Rectangle((100, 50), 80, 10, 0.0), level=0.4)
    thin = drawn_map(Rectangle((100, 50), 80, 0.5, 0.0))
    assert text_boxes(faint, DetectionConfig()) == []
    assert text_boxes(thin, DetectionConfig()) == []


def line(text: str, x: float, y: float, height: float = 10) -> Line:
    return Line(text, 1.0, Rectangle((x, y), 30, height, 0.0).corners())


def test_reading_goes_down_the_page_and_along_each_row() -> None:
    page = [line("d", 90, 52), line("b", 90, 11), line("c", 20, 50), line("a", 20, 10)]
    assert [[one.text for one in row] for row in rows(page)] == [["a", "b"], ["c", "d"]]


def test_close_lines_are_rows_of_their_own() -> None:
    assert [[one.text for one in row] for row in rows([line("b", 20, 22), line("a", 20, 14)])] == [["a"], ["b"]]


def test_a_slanted_strip_is_cut_out_straight() -> None:
    image = Image.new("RGB", (200, 100), "white")
    drawn = Rectangle((100, 50), 90, 12, 0.25)
    ImageDraw.Draw(image).polygon([tuple(point) for point in drawn.corners()], fill="black")
    strip = np.asarray(cut_out(image, drawn.corners()).convert("L"))
    assert strip.shape == (12, 90)
    assert strip[2:-2, 2:-2].max() < 40


def test_tall_strips_are_laid_down() -> None:
    image = Image.new("RGB", (100, 200), "white")
    assert cut_out(image, Rectangle((50, 100), 12, 90, 0.0).corners()).size == (90, 12)
