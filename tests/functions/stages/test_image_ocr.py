"""`image.ocr` on pages that the test writes itself."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

import functions.stages.image.ocr  # noqa: F401 - registers the function
from bus.errors import MediaTooLargeError, MediaUnreadableError
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from tests.made.pictures import huge_png, saved

pytestmark = pytest.mark.models

LINES = ["The event bus carries", "references, never tensors.", "Item 66213 is at page 42"]


def page(lines: list[str], size: tuple[int, int] = (640, 300), font_size: int = 32) -> Image.Image:
    image = Image.new("RGB", size, "white")
    for index, text in enumerate(lines):
        ImageDraw.Draw(image).text(
            (40, 40 + index * 70), text, fill="black", font=ImageFont.load_default(size=font_size)
        )
    return image


async def read(environment: FunctionEnvironment, *files: bytes) -> list[dict[str, Any]]:
    items = [
        {"part": part, "ref": (await save_media(environment.store, data, "image/png")).model_dump()}
        for part, data in enumerate(files)
    ]
    return list((await environment.run("image.ocr", {"images": items}))["pages"])


def letters(text: str) -> str:
    """The recogniser is trained on a language without spaces and drops some."""
    return "".join(text.split())


async def test_a_page_is_read_in_order_with_boxes_where_the_lines_are(environment: FunctionEnvironment) -> None:
    image = page(LINES)
    (found,) = await read(environment, saved(image, "PNG"))
    assert letters(found["text"]) == letters("".join(LINES))
    assert (found["width"], found["height"]) == image.size
    assert len(found["lines"]) == 3
    for index, line in enumerate(found["lines"]):
        drawn = ImageDraw.Draw(image).textbbox(
            (40, 40 + index * 70), LINES[index], font=ImageFont.load_default(size=32)
        )
        (left, top), _, (right, bottom), _ = line["box"]
        assert (left, top, right, bottom) == pytest.approx(drawn, abs=14)
        assert line["confidence"] > 0.9


async def test_a_slanted_page_is_read(environment: FunctionEnvironment) -> None:
    (found,) = await read(environment, saved(page(LINES).rotate(6, expand=True, fillcolor="white"), "PNG"))
    assert letters(found["text"]) == letters("".join(LINES))


async def test_a_page_on_its_head_is_read_line_by_line(environment: FunctionEnvironment) -> None:
    (found,) = await read(environment, saved(page(LINES).rotate(180), "PNG"))
    assert {letters(line["text"]) for line in found["lines"]} == {letters(line) for line in LINES}


async def test_a_photo_turned_by_its_camera_is_read(environment: FunctionEnvironment) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (found,) = await read(environment, saved(page(LINES).rotate(90, expand=True), "JPEG", exif=exif))
    assert letters(found["text"]) == letters("".join(LINES))
    assert (found["width"], found["height"]) == (640, 300)


async def test_columns_on_one_height_are_one_row(environment: FunctionEnvironment) -> None:
    image = page(["Name"])
    ImageDraw.Draw(image).text((420, 40), "Price", fill="black", font=ImageFont.load_default(size=32))
    (found,) = await read(environment, saved(image, "PNG"))
    assert found["text"] == "Name Price"


async def test_a_picture_without_text_gives_an_empty_page(environment: FunctionEnvironment) -> None:
    (found,) = await read(environment, saved(Image.new("RGB", (300, 200), "white"), "PNG"))
    assert (found["text"], found["lines"]) == ("", ())


@pytest.mark.parametrize("size", [(1, 1), (2000, 3), (5, 900)])
async def test_odd_sizes_are_answered(environment: FunctionEnvironment, size: tuple[int, int]) -> None:
    (found,) = await read(environment, saved(Image.new("RGB", size, "white"), "PNG"))
    assert found["text"] == ""


async def test_bad_pictures_are_typed_errors(environment: FunctionEnvironment) -> None:
    with pytest.raises(MediaTooLargeError):
        await read(environment, huge_png())
    with pytest.raises(MediaUnreadableError):
        await read(environment, saved(page(LINES), "PNG")[:500])
