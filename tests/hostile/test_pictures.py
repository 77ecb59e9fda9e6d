"""Pictures that are broken, enormous, odd or not pictures, through the whole stack."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.hostile.stack import Stack, answered, refused
from tests.made.pictures import corners, huge_png, saved
from tests.made.sounds import tone, wav

pytestmark = pytest.mark.models

PNG = saved(corners(), "PNG")
JPEG = saved(corners(), "JPEG")


def asked(data: bytes, media_type: str = "image/png") -> list[dict[str, Any]]:
    """A question about a picture."""
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def bomb(place: bytes) -> bytes:
    """A small PNG with a chunk that unpacks to 50 MB."""
    return PNG[:33] + chunk(place, b"k\0\0" + zlib.compress(bytes(50_000_000), 9)) + PNG[33:]


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(corners(), "JPEG", exif=exif)


REFUSED: dict[str, tuple[bytes, int, str, str]] = {
    "nothing": (b"", 400, "media_unreadable", "0 bytes"),
    "one byte": (b"x", 415, "media_unsupported", "no known format"),
    "text": (b"hello, I am a text file", 415, "media_unsupported", "no known format"),
    "the first half of a PNG": (PNG[: len(PNG) // 2], 400, "media_unreadable", "truncated"),
    "the first half of a JPEG": (JPEG[: len(JPEG) // 2], 400, "media_unreadable", "truncated"),
    "a PNG's signature": (PNG[:8], 415, "media_unsupported", "8 bytes"),
    "30,000 × 30,000 pixels": (huge_png(), 413, "media_too_large", "30000 × 30000"),
    "a JPEG that claims 65,000 × 65,000 pixels": (
        JPEG.replace(struct.pack(">HH", 240, 320), struct.pack(">HH", 65_000, 65_000)), 413, "media_too_large", "65000",
    ),
    "a text bomb": (bomb(b"zTXt"), 400, "media_unreadable", "too large"),
    "a colour profile bomb": (bomb(b"iCCP"), 400, "media_unreadable", "too large"),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "media_unsupported", "no known format"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n", 415, "media_unsupported", "no known format"),
    "HEIC": (b"\0\0\0\x18ftypheic" + bytes(100), 415, "media_unsupported", "no known format"),
    "a TIFF whose directory is itself": (b"II*\0\x08\0\0\0\0\0\x08\0\0\0", 415, "media_unsupported", ""),
    "noise": (np.random.default_rng(0).bytes(5_000), 415, "media_unsupported", "no known format"),
    "a sound": (wav(tone(440, 0.1, 16_000), 16_000), 415, "media_unsupported", "audio/wav"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_usable_picture_is_refused(stack: Stack, what: str) -> None:
    data, status, code, words = REFUSED[what]
    refused(stack.chat(asked(data)), status, code, words)


TAKEN: dict[str, bytes] = {
    "a JPEG called PNG": JPEG,
    "an animated GIF": saved(corners(), "GIF", save_all=True, append_images=[corners().rotate(90)], duration=100),
    "CMYK": saved(corners().convert("CMYK"), "JPEG"),
    "16-bit grey": saved(Image.fromarray(np.arange(65_536, dtype=np.uint16).reshape(256, 256)), "PNG"),
    "floats that are no numbers": saved(Image.fromarray(np.full((64, 64), np.nan, np.float32)), "TIFF"),
    "black and white": saved(corners().convert("1"), "PNG"),
    "a palette with a transparent colour": saved(corners().convert("P"), "PNG", transparency=0),
    "one pixel": saved(corners(1, 1), "PNG"),
    "a line of 60,000 pixels": saved(corners(60_000, 1), "PNG"),
    "a phone's picture, lying on its side": turned(),
    "a broken EXIF block": saved(corners(), "JPEG", exif=b"Exif\0\0" + b"\xff" * 50),
}


@pytest.mark.parametrize("what", TAKEN)
def test_an_odd_picture_is_looked_at(stack: Stack, what: str) -> None:
    assert answered(stack.chat(asked(TAKEN[what])))["omnibus"]["labels"][0]["names"]


def test_a_turned_picture_is_seen_upright(stack: Stack) -> None:
    upright = saved(corners().transpose(Image.Transpose.ROTATE_270), "PNG")
    seen = [answered(stack.chat(asked(one)))["omnibus"]["labels"][0] for one in (turned(), upright)]
    assert seen[0]["names"][0] == seen[1]["names"][0]


def test_a_page_without_a_word_has_no_text(stack: Stack) -> None:
    blank = saved(Image.new("RGB", (600, 400), "white"), "PNG")
    response = stack.http.post("/v1/pipelines/ocr", content=blank, headers={"content-type": "image/png"})
    (page,) = answered(response)["outputs"]["pages"]
    assert (page["text"], page["lines"], page["width"]) == ("", [], 600)


def test_a_page_that_is_a_sound_is_refused(stack: Stack) -> None:
    sound = wav(tone(440, 0.1, 16_000), 16_000)
    response = stack.http.post("/v1/pipelines/ocr", content=sound, headers={"content-type": "image/png"})
    refused(response, 400, "invalid_input", "pages")


def test_forty_pictures_at_once_are_too_many(stack: Stack) -> None:
    refused(stack.chat(asked(PNG)[:1] * 40), 413, "limit_exceeded", "at most 32")


BASE64: dict[str, tuple[str, str]] = {
    "other letters": ("data:image/png;base64,@@@@", "not base64"),
    "one letter": ("data:image/png;base64,A", "not base64"),
    "no comma": ("data:image/png;base64", "send an http, https or data URL"),
    "endless parameters": ("data:" + ";a=b" * 50_000, "send an http, https or data URL"),
    "nothing": ("", "send an http, https or data URL"),
}


@pytest.mark.parametrize("what", BASE64)
def test_data_urls_that_are_none_name_their_place(stack: Stack, what: str) -> None:
    url, words = BASE64[what]
    response = stack.chat([{"type": "image_url", "image_url": {"url": url}}])
    refused(response, 400, "invalid_input", words)
    assert response.json()["error"]["param"] == "messages.0.content.0.image_url.url"
