"""Pictures that the tests draw themselves."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def corners(width: int = 320, height: int = 240) -> Image.Image:
    """Red top left, green top right, blue bottom left, white bottom right: no rotation or flip looks like another."""
    pixels = np.zeros((height, width, 3), np.uint8)
    middle_y, middle_x = height // 2, width // 2
    pixels[:middle_y, :middle_x], pixels[:middle_y, middle_x:] = RED, GREEN
    pixels[middle_y:, :middle_x], pixels[middle_y:, middle_x:] = BLUE, WHITE
    return Image.fromarray(pixels)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The picture as a file of a format."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def huge_png(width: int = 30_000, height: int = 30_000) -> bytes:
    """A valid one-bit PNG of that size, made row by row: 900 million pixels in 110 KB."""
    packer = zlib.compressobj(9)
    row = b"\0" + bytes((width + 7) // 8)
    body = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def corner_colours(image: Image.Image) -> list[tuple[int, int, int]]:
    """Colours well inside the four quarters, rounded to pure ones: top left, top right, bottom left, bottom right."""
    width, height = image.size
    places = [(x, y) for y in (height // 4, height * 3 // 4) for x in (width // 4, width * 3 // 4)]
    pixels = np.asarray(image)
    return [tuple(int(255 * (value > 127)) for value in pixels[y, x]) for x, y in places]  # type: ignore[misc]
