"""`image.ocr`: the text on pictures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, MediaLimits
from bus.store.media import load_media
from functions.context import Context
from functions.decorator import function
from functions.stages.blame import about
from functions.stages.pages import Page, TextLine
from functions.stages.parts import MediaItem

if TYPE_CHECKING:
    from runtime.repository import Repository
    from runtime.vision.text_reader import Line, TextReader


class OcrInputs(Contract):
    """Pictures in the object store."""

    images: tuple[MediaItem, ...] = ()
    parts: tuple[int, ...] | None = Field(default=None, description="Of those of these parts alone; None: of all.")
    limits: MediaLimits = MediaLimits()


class OcrOutputs(Contract):
    """One page a picture, empty of text where there is none."""

    pages: tuple[Page, ...] = ()


def setup(repository: Repository) -> TextReader:
    """Load detector, angle classifier and recogniser."""
    from runtime.vision.text_reader import TextReader

    return TextReader.load(repository)


async def warm_up(model: TextReader) -> None:
    """Read a word, so that the detector, the angle classifier and the recogniser have all run."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (320, 96), "white")
    ImageDraw.Draw(picture).text((20, 20), "ready", "black", font_size=48)
    await asyncio.to_thread(model.read, picture)


@function(
    "image.ocr",
    setup=setup,
    warm_up=warm_up,
    models=("ppocr-v4",),
    group="encode",
    cacheable=True,
    timeout_s=180.0,
)
async def ocr(context: Context[TextReader], inputs: OcrInputs) -> OcrOutputs:
    """Read every picture.

    Raises:
        MediaTooLargeError: More pixels than allowed.
        MediaUnsupportedError: Not an image that is decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    pages = []
    for item in inputs.images:
        if inputs.parts is not None and item.part not in inputs.parts:
            continue
        context.check()
        with about(item.part):
            data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
            rows, width, height = await context.run(_read, context.model, data, inputs.limits)
        pages.append(
            Page(
                part=item.part,
                text="\n".join(" ".join(line.text for line in row) for row in rows),
                lines=tuple(_line(line) for row in rows for line in row),
                width=width,
                height=height,
                source=item.ref.digest,
            )
        )
    context.note(pages=len(pages), lines=sum(len(page.lines) for page in pages))
    return OcrOutputs(pages=tuple(pages))


def _read(reader: TextReader, data: bytes, limits: MediaLimits) -> tuple[list[list[Line]], int, int]:
    from runtime.media.images import decode

    (picture,) = decode(data, limits)
    return reader.read(picture.image), picture.width, picture.height


def _line(line: Line) -> TextLine:
    corners = tuple((round(float(x), 1), round(float(y), 1)) for x, y in line.box)
    return TextLine(text=line.text, confidence=min(1.0, line.confidence), box=corners)
