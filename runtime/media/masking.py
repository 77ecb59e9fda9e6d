"""Media with a part of them taken away, to learn what an answer needed: grey for pictures, silence for sound.

Source: Zeiler and Fergus, Visualizing and Understanding Convolutional Networks (ECCV 2014), section 4.2.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image, ImageStat

from bus.contracts import MediaLimits, Modality
from bus.errors import InvalidInputError
from runtime.media import audio, images, video
from runtime.media.encode import encode

_SIDE, _FRAME_SIDE = 1024, 512
_FRAMES, _FRAMES_PER_SECOND = 64, 4
_QUALITY_BIT_RATE = 4_000_000
_RATE_HZ = audio.SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a piece of media.

    Attributes:
        box: Left, top, right, bottom as shares of an upright picture; None: all of it.
        span_s: From when to when, in seconds; None: all the time.
    """

    box: tuple[float, float, float, float] | None = None
    span_s: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """A file, and what of it is missing.

    Attributes:
        data: The file.
        media_type: Its MIME type.
        place: What was taken away; None: nothing, so that it can be compared with the others.
    """

    data: bytes
    media_type: str
    place: Place | None


def masked_files(data: bytes, modality: Modality, limits: MediaLimits, parts: int) -> Iterator[MaskedFile]:
    """A piece of media written anew, without each of its parts in turn, and at last without all of them.

    Pictures are cut into `parts` × `parts` cells, sound and film into as many stretches of time. What is written is at
    most 1,024 pixels (a film 512, four frames a second) wide or high.

    Args:
        data: The file.
        modality: What it is taken for.
        limits: What is decoded.
        parts: How finely it is cut, at least 1.

    Raises:
        InvalidInputError: A modality without parts.
        MediaTooLargeError: Over a limit.
        MediaUnsupportedError: Not media of that modality.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    if modality is Modality.IMAGE:
        return _pictures(data, limits, parts)
    if modality is Modality.AUDIO:
        return _clips(data, limits, parts)
    if modality is Modality.VIDEO:
        return _films(data, limits, parts)
    raise InvalidInputError(f"{modality} has no parts that could be taken away")


def _pictures(data: bytes, limits: MediaLimits, parts: int) -> Iterator[MaskedFile]:
    (picture,) = images.decode(data, limits, shortest_side=_SIDE)
    plain = picture.image
    plain.thumbnail((_SIDE, _SIDE))
    for place in (None, *_cells(parts), Place()):
        out = io.BytesIO()
        _without(plain, place).save(out, "PNG", compress_level=1)
        yield MaskedFile(out.getvalue(), "image/png", place)


def _cells(parts: int) -> list[Place]:
    edges = [index / parts for index in range(parts + 1)]
    return [
        Place(box=(edges[column], edges[row], edges[column + 1], edges[row + 1]))
        for row in range(parts)
        for column in range(parts)
    ]


def _without(picture: Image.Image, place: Place | None) -> Image.Image:
    """The picture with its mean colour in the place of a cell."""
    if place is None:
        return picture
    left, top, right, bottom = place.box or (0.0, 0.0, 1.0, 1.0)
    width, height = picture.size
    box = (round(left * width), round(top * height), round(right * width), round(bottom * height))
    changed = picture.copy()
    changed.paste(tuple(round(value) for value in ImageStat.Stat(picture).mean), box)
    return changed


def _clips(data: bytes, limits: MediaLimits, parts: int) -> Iterator[MaskedFile]:
    samples = audio.decode(data, limits)
    for place in (None, *_stretches(len(samples) / _RATE_HZ, parts), Place()):
        yield MaskedFile(*encode(_silenced(samples, place), _RATE_HZ, "wav"), place)


def _stretches(seconds: float, parts: int) -> list[Place]:
    edges = [seconds * index / parts for index in range(parts + 1)]
    return [Place(span_s=(edges[index], edges[index + 1])) for index in range(parts)]


def _silenced(samples: audio.Samples, place: Place | None) -> audio.Samples:
    changed = samples.copy()
    if place is not None:
        start_s, end_s = place.span_s or (0.0, len(samples) / _RATE_HZ)
        changed[round(start_s * _RATE_HZ) : round(end_s * _RATE_HZ)] = 0
    return changed


def _films(data: bytes, limits: MediaLimits, parts: int) -> Iterator[MaskedFile]:
    clip = video.decode(data, limits, frames=_FRAMES, frames_per_second=_FRAMES_PER_SECOND)
    for frame in clip.frames:
        frame.image.thumbnail((_FRAME_SIDE, _FRAME_SIDE))
    for place in (None, *_stretches(clip.seconds, parts), Place()):
        start_s, end_s = (place.span_s or (0.0, clip.seconds + 1.0)) if place is not None else (0.0, 0.0)
        frames = [
            (frame.time_s, _without(frame.image, Place() if start_s <= frame.time_s < end_s else None))
            for frame in clip.frames
        ]
        samples = None if clip.samples is None else _silenced(clip.samples, place)
        yield MaskedFile(_film(frames, samples, clip.seconds), "video/x-matroska", place)


def _film(frames: Sequence[tuple[float, Image.Image]], samples: audio.Samples | None, seconds: float) -> bytes:
    out = io.BytesIO()
    # The codec takes even sizes; the first frame's is that of the film.
    width, height = (max(2, side // 2 * 2) for side in frames[0][1].size)
    with av.open(out, "w", format="matroska") as file:
        stream: Any = file.add_stream("mpeg4", rate=_FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", _QUALITY_BIT_RATE
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        sound: Any = None if samples is None else file.add_stream("pcm_s16le", rate=_RATE_HZ, layout="mono")
        shown = [*frames, (max(seconds - 1 / _FRAMES_PER_SECOND, frames[-1][0] + 0.001), frames[-1][1])]
        for time_s, picture in shown:
            frame = av.VideoFrame.from_ndarray(np.asarray(picture.resize((width, height))), format="rgb24")
            frame.pts, frame.time_base = round(time_s * 1000), Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        if sound is not None and samples is not None:
            whole = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None]), format="fltp", layout="mono")
            whole.sample_rate = _RATE_HZ
            resampler = av.AudioResampler(format="s16", layout="mono", rate=_RATE_HZ, frame_size=1024)
            for piece in [*resampler.resample(whole), *resampler.resample(None)]:
                file.mux(sound.encode(piece))
            file.mux(sound.encode(None))
    return out.getvalue()
