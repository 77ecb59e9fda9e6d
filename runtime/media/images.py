"""Pictures from bytes: checked by their header before anything is decoded, upright, and plain RGB."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bus.contracts import MediaLimits
from bus.errors import MediaError, MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF")
"""What is decoded. Pillow knows more, among them formats that start other programs (EPS)."""

_BAND_PIXELS = 1 << 20

# Pillow's own check warns or raises at one size for the whole process; ours is exact and per request.
Image.MAX_IMAGE_PIXELS = None


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture.

    Attributes:
        image: RGB, upright, possibly smaller than the original (see `decode`).
        width: Of the original after rotation, in pixels.
        height: Of the original after rotation, in pixels.
        time_s: When an animation shows it, in seconds; None for a still.
    """

    image: Image.Image
    width: int
    height: int
    time_s: float | None = None


def decode(data: bytes, limits: MediaLimits, *, shortest_side: int | None = None, frames: int = 1) -> list[Picture]:
    """Decode a picture, or frames of an animation spread evenly over its length.

    Args:
        data: The file.
        limits: Checked against the header, before any pixel is decoded.
        shortest_side: JPEG may be shrunk while it is decoded, to no less than this, in pixels.
        frames: The most frames to take of an animation; 1 takes the first.

    Raises:
        MediaTooLargeError: More pixels than allowed.
        MediaUnsupportedError: Not a picture of a format that is decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    if not data:
        raise MediaUnreadableError("the image is empty: it has 0 bytes; send the file's content")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return list(_pictures(image, limits, shortest_side, frames))
    except UnidentifiedImageError as error:
        raise MediaUnsupportedError(
            f"{len(data)} bytes are not an image of a known format; send one of {', '.join(FORMATS)}"
        ) from error
    except MediaError:
        raise
    except Exception as error:  # Pillow's decoders raise anything at all on hostile bytes
        raise MediaUnreadableError(
            f"the image is truncated or corrupt and could not be decoded ({type(error).__name__}: {error})"
        ) from error


def _pictures(image: Image.Image, limits: MediaLimits, shortest_side: int | None, frames: int) -> Iterator[Picture]:
    _check_size(image, limits)
    count = getattr(image, "n_frames", 1) if frames > 1 and image.format in ("GIF", "WEBP", "PNG", "AVIF") else 1
    if count == 1:
        yield _picture(image, shortest_side, None)
        return
    if count * image.width * image.height > limits.max_frames * limits.max_pixels:
        raise MediaTooLargeError(
            f"the animation has {count} frames of {image.width} × {image.height} pixels; at most "
            f"{limits.max_frames} frames of {limits.max_pixels:,} pixels in all are taken"
        )
    wanted = set(np.linspace(0, count - 1, min(frames, limits.max_frames, count)).round().astype(int).tolist())
    time_s = 0.0
    for index in range(count):
        image.seek(index)
        _check_size(image, limits)
        if index in wanted:
            yield _picture(image, shortest_side, time_s)
        # A delay of 0 means "as fast as possible"; browsers show such frames for a tenth of a second.
        time_s += (image.info.get("duration") or 100) / 1000


def _picture(image: Image.Image, shortest_side: int | None, time_s: float | None) -> Picture:
    width, height = image.size
    if shortest_side is not None and image.format in ("JPEG", "MPO"):
        image.draft(None, (shortest_side, shortest_side))
    image.load()
    upright = _upright(image)
    if upright.size != image.size:
        width, height = height, width
    return Picture(_to_rgb(upright), width, height, time_s)


def _check_size(image: Image.Image, limits: MediaLimits) -> None:
    width, height = image.size
    if width * height > limits.max_pixels:
        raise MediaTooLargeError(
            f"the image is {width} × {height} = {width * height:,} pixels; at most {limits.max_pixels:,} are taken",
            width=width,
            height=height,
            max_pixels=limits.max_pixels,
        )


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a broken EXIF block says nothing about the picture, which was decoded already
        return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "I;16", "I;16L", "I;16B", "I;16N", "F"):
        return _deep_to_rgb(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        # What lies below transparent pixels is arbitrary; a viewer shows the page behind them.
        layer = image.convert("RGBA")
        page = Image.new("RGB", layer.size, "white")
        page.paste(layer, mask=layer)
        return page
    return image.convert("RGB")


def _deep_to_rgb(image: Image.Image) -> Image.Image:
    """Grey of more than 8 bits: Pillow's own conversion clips it instead of scaling it."""
    values = np.asarray(image)
    low, high = _range(image.mode, values)
    grey = np.empty(values.shape, np.uint8)
    rows = max(1, _BAND_PIXELS // image.width)
    for start in range(0, len(values), rows):  # in bands: floats of all pixels at once are eight times the picture
        band = np.nan_to_num(values[start : start + rows].astype(np.float64), nan=low, posinf=high, neginf=low)
        grey[start : start + rows] = ((band - low) * (255.0 / ((high - low) or 1.0))).round().clip(0, 255)
    return Image.fromarray(grey).convert("RGB")


def _range(mode: str, values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """What black and white are."""
    if mode != "F":
        return 0.0, 65535.0 if "16" in mode or values.max(initial=0) > 255 else 255.0
    finite = np.isfinite(values)
    low = float(values.min(initial=np.inf, where=finite))
    high = float(values.max(initial=-np.inf, where=finite))
    return (low, high) if finite.any() and (low < 0.0 or high > 1.0) else (0.0, 1.0)
