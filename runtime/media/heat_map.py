"""Pictures of what parts of media did: warm where they helped an answer, cold where they stood against it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bus.contracts import MediaLimits
from runtime.media import audio, images, video

Box = tuple[float, float, float, float]
Span = tuple[float, float]

_SIDE, _LEGEND = 768, 26
_STRIP_WIDTH, _STRIP_HEIGHT = 960, 160
_THUMBNAILS = 8
_WARM, _COLD = (214, 48, 31), (33, 102, 172)
_STRONGEST = 0.65
"""Of the colour in the strongest place; the picture stays to be seen below it."""


def over_picture(data: bytes, boxes: Sequence[Box], nats: Sequence[float], limits: MediaLimits) -> bytes:
    """A PNG of a picture, in grey, with a colour over each of its regions and a legend below.

    Args:
        data: The picture.
        boxes: Left, top, right, bottom as shares.
        nats: What each did.
        limits: Of the picture.

    Raises:
        MediaError: A picture that cannot be decoded, or is over a limit.
    """
    (picture,) = images.decode(data, limits, shortest_side=_SIDE)
    shown = picture.image.convert("L").convert("RGB")
    shown = shown.resize(_fitting(shown.size))
    strengths = np.zeros((shown.height, shown.width), np.float32)
    for (left, top, right, bottom), value in zip(boxes, nats, strict=True):
        rows = slice(round(top * shown.height), round(bottom * shown.height))
        strengths[rows, round(left * shown.width) : round(right * shown.width)] = value
    return _png(_with_legend(_coloured(shown, strengths), nats))


def over_sound(data: bytes, spans_s: Sequence[Span], nats: Sequence[float], limits: MediaLimits) -> bytes:
    """A PNG of a sound's course, with a colour over each stretch of it.

    Args:
        data: The clip.
        spans_s: From when to when, in seconds.
        nats: What each did.
        limits: Of the clip.

    Raises:
        MediaError: A clip that cannot be decoded, or is over a limit.
    """
    samples = audio.decode(data, limits)
    strip = Image.new("RGB", (_STRIP_WIDTH, _STRIP_HEIGHT), "white")
    draw = ImageDraw.Draw(strip)
    for x, piece in enumerate(np.array_split(np.abs(samples), _STRIP_WIDTH)):
        half = float(piece.max(initial=0.0)) * (_STRIP_HEIGHT / 2 - 1)
        draw.line((x, _STRIP_HEIGHT / 2 - half, x, _STRIP_HEIGHT / 2 + half), fill=(110, 110, 110))
    seconds = len(samples) / audio.SAMPLE_RATE_HZ
    return _png(_with_legend(_coloured(strip, _stretches(spans_s, nats, seconds)), nats, seconds))


def over_film(data: bytes, spans_s: Sequence[Span], nats: Sequence[float], limits: MediaLimits) -> bytes:
    """A PNG of a film's frames in a row, with a colour over each stretch of time; see `over_sound`."""
    clip = video.decode(data, limits, frames=_THUMBNAILS, frames_per_second=_THUMBNAILS)
    strip = Image.new("RGB", (_STRIP_WIDTH, _STRIP_HEIGHT), "white")
    width = _STRIP_WIDTH // _THUMBNAILS
    for index in range(_THUMBNAILS):
        time_s = (index + 0.5) * clip.seconds / _THUMBNAILS
        frame = min(clip.frames, key=lambda one: abs(one.time_s - time_s))
        thumbnail = frame.image.convert("L").convert("RGB")
        thumbnail.thumbnail((width, _STRIP_HEIGHT))
        strip.paste(thumbnail, (index * width, (_STRIP_HEIGHT - thumbnail.height) // 2))
    strengths = _stretches(spans_s, nats, clip.seconds)
    return _png(_with_legend(_coloured(strip, strengths), nats, clip.seconds))


def _fitting(size: tuple[int, int]) -> tuple[int, int]:
    scale = _SIDE / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _stretches(spans_s: Sequence[Span], nats: Sequence[float], seconds: float) -> NDArray[np.float32]:
    strengths = np.zeros((1, _STRIP_WIDTH), np.float32)
    for (start_s, end_s), value in zip(spans_s, nats, strict=True):
        scale = _STRIP_WIDTH / max(seconds, 1e-6)
        strengths[0, round(start_s * scale) : round(end_s * scale)] = value
    return np.repeat(strengths, _STRIP_HEIGHT, axis=0)


def _coloured(picture: Image.Image, strengths: NDArray[np.float32]) -> Image.Image:
    """Warm and cold colours as strong as the strengths, the largest of which is the strongest."""
    share = strengths / max(float(np.abs(strengths).max()), 1e-9)
    colour = np.where(share[..., None] > 0, _WARM, _COLD)
    weight = _STRONGEST * np.abs(share)[..., None]
    mixed = np.asarray(picture, np.float32) * (1 - weight) + colour * weight
    return Image.fromarray(mixed.round().astype(np.uint8))


def _with_legend(picture: Image.Image, nats: Sequence[float], seconds: float | None = None) -> Image.Image:
    page = Image.new("RGB", (max(picture.width, 320), picture.height + _LEGEND), "white")
    page.paste(picture)
    strongest = max(nats, key=abs, default=0.0)
    told = f"strongest part: {strongest:+.2f} nats; red helped the answer, blue stood against it"
    if seconds is not None:
        told = f"0 to {seconds:.1f} s; {told}"
    ImageDraw.Draw(page).text((6, picture.height + 6), told, fill="black")
    return page


def _png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
