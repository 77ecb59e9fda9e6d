"""A photo of 12 megapixels that nobody has to have at hand: colours, shadows, edges, and the noise of a sensor."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


def photo(width: int = 4000, height: int = 3000) -> Image.Image:
    """The same in every run; as soft as lenses are."""
    random = np.random.default_rng(0)
    pixels = np.full((height, width, 3), 120.0, np.float32)
    for octave, cells in enumerate((6, 18, 54, 160)):
        grid = random.normal(0, 44 / (octave + 1), (cells * 3 // 4, cells, 3))
        coarse = Image.fromarray((grid + 128).clip(0, 255).astype(np.uint8))
        pixels += np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float32) - 128
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for left, top, size, *colour in random.integers(0, 256, (120, 6)):
        colour = [48 + value * 5 // 8 for value in colour]
        corner = (int(left) * width // 256, int(top) * height // 256)
        draw.ellipse([corner, (corner[0] + int(size) * 2, corner[1] + int(size))], fill=tuple(map(int, colour)))
    soft = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), np.float32)
    return Image.fromarray((soft + random.normal(0, 3, (height, width, 1))).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image) -> bytes:
    """As a camera saves it."""
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return out.getvalue()
