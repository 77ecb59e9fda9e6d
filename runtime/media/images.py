"""Pictures from bytes: checked by their header before anything is decoded, upright, and plain RGB."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bus.contracts import MediaLimits
from bus.errors import MediaError, MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF")
"""What is decoded. Pillow knows more, among them formats that start other programs (EPS)."""

Resolution = Callable[[int, int], tuple[int, int]]
"""The width and height that a picture of some width and height will be made, in pixels."""

_BAND_PIXELS = 1 << 20

_NEEDED = 3.75
"""Pixels along each side for each one that will be made of them, in a JPEG that is shrunk while it is decoded.

On photos values then differ by at most 3 of 255 from those of the whole picture (99.9 % by at most 2, 0.2 on average);
on hard edges between black and white by 6, between pure colours by 19. At 2 pixels they are 7, 14 and 33.
"""
_NEEDED_OF_LARGE = 1.75
_LARGE_PIXELS = 24_000_000
"""More would take 100 MB, and as much again to be turned; such a picture has more of them than it has detail."""

_ORIENTATION = 0x0112

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


def decode(
    data: bytes,
    limits: MediaLimits,
    *,
    shortest_side: int | None = None,
    resolution: Resolution | None = None,
    frames: int = 1,
) -> list[Picture]:
    """Decode a picture, or frames of an animation spread evenly over its length.

    Args:
        data: The file.
        limits: Checked against the header, before any pixel is decoded.
        shortest_side: JPEG may be shrunk while it is decoded, to no less than this, in pixels.
        resolution: JPEG may be shrunk while it is decoded, as far as what is made of it stays nearly the same.
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
            return list(_pictures(image, limits, _Shrinking(shortest_side, resolution), frames))
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


@dataclass(frozen=True, slots=True)
class _Shrinking:
    """How far a JPEG may be shrunk while it is decoded."""

    shortest_side: int | None
    resolution: Resolution | None

    def load(self, image: Image.Image) -> Image.Image:
        """Decode it."""
        is_jpeg, whole = image.format in ("JPEG", "MPO"), None
        if is_jpeg and self.shortest_side is not None:
            image.draft(None, (self.shortest_side, self.shortest_side))
        elif is_jpeg and self.resolution is not None and (factor := self._factor(image, self.resolution)) > 1:
            whole = (image.width // factor, image.height // factor)
            image.draft(None, whole)
        image.load()
        # Where the factor leaves a rest, the last pixels stand for fewer.
        return image if whole in (None, image.size) else image.crop((0, 0, *whole))

    def _factor(self, image: Image.Image, resolution: Resolution) -> int:
        turned = _orientation(image) > 4
        wanted = resolution(*(image.size[::-1] if turned else image.size))
        return shrink_factor(image.size, wanted[::-1] if turned else wanted)


def shrink_factor(size: tuple[int, int], wanted: tuple[int, int]) -> int:
    """By how much a JPEG is shrunk while it is decoded: 1, 2, 4 or 8.

    Args:
        size: Width and height.
        wanted: Those of what will be made of it.
    """
    width, height = size
    large = width * height > _LARGE_PIXELS
    needed = _NEEDED_OF_LARGE if large else _NEEDED
    room = min(width / wanted[0], height / wanted[1])
    # Where a factor leaves a rest, all pixels would be moved a little, which only those of a large picture may be.
    whole = (factor for factor in (8, 4, 2) if large or not (width % factor or height % factor))
    return next((factor for factor in whole if room >= needed * factor), 1)


def _pictures(image: Image.Image, limits: MediaLimits, shrinking: _Shrinking, frames: int) -> Iterator[Picture]:
    _check_size(image, limits)
    count = getattr(image, "n_frames", 1) if frames > 1 and image.format in ("GIF", "WEBP", "PNG", "AVIF") else 1
    if count == 1:
        yield _picture(image, shrinking, None)
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
            # The next frame is drawn into the same picture.
            shown = _picture(image, shrinking, time_s)
            yield replace(shown, image=shown.image.copy()) if shown.image is image else shown
        # A delay of 0 means "as fast as possible"; browsers show such frames for a tenth of a second.
        time_s += (image.info.get("duration") or 100) / 1000


def _picture(image: Image.Image, shrinking: _Shrinking, time_s: float | None) -> Picture:
    width, height = image.size
    loaded = shrinking.load(image)
    upright = _upright(loaded)
    if upright.size != loaded.size:
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


def _orientation(image: Image.Image) -> int:
    """How the picture is stored, from 1 (upright) to 8; above 4 on its side."""
    try:
        stored = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a broken EXIF block says nothing about the picture
        return 1
    return stored if isinstance(stored, int) and 1 <= stored <= 8 else 1


def _upright(image: Image.Image) -> Image.Image:
    if _orientation(image) == 1:  # Pillow would make a copy
        return image
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
    return image if image.mode == "RGB" else image.convert("RGB")


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
