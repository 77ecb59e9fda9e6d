"""Frames of a video at chosen moments, by their real time stamps, without decoding what lies between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av
import numpy as np
from av.stream import Disposition
from PIL import Image

from bus.contracts import MediaLimits
from bus.errors import MediaError, MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.audio import Samples, check_seconds, decode_track, open_container

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

SEEK_AHEAD_S = 2.0
"""A moment nearer than this is reached by decoding on: a seek would mostly land on a passed keyframe."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        image: RGB, upright.
        time_s: When it is first shown, in seconds from the start of the video.
    """

    image: Image.Image
    time_s: float


@dataclass(frozen=True, slots=True)
class Clip:
    """A decoded video.

    Attributes:
        frames: In order of time.
        samples: float32 (sample,), mono, 16 kHz, in [-1, 1]; None without a sound track.
        seconds: Length of the video.
    """

    frames: list[Frame]
    samples: Samples | None
    seconds: float


def decode(data: bytes, limits: MediaLimits, *, frames: int, frames_per_second: float) -> Clip:
    """Sample a video by time and decode its sound.

    Args:
        data: The file.
        limits: Length and pixels are checked in the header; `max_frames` bounds `frames`.
        frames: The most frames to take.
        frames_per_second: How densely to sample as long as that gives no more than `frames`.

    Raises:
        MediaTooLargeError: Longer, or of more pixels, than allowed.
        MediaUnsupportedError: Not a video, or one without a picture.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    with open_container(data, "video") as container:
        stream = _picture_stream(container)
        if stream is None:
            raise MediaUnsupportedError("the file has no video stream; send one with pictures, or send it as audio")
        if stream.codec_context is None:
            raise MediaUnsupportedError("the file's video is of a codec that is not known here")
        _check_pixels(stream.codec_context.width, stream.codec_context.height, limits)
        try:
            seconds = _seconds(container, stream)
            check_seconds(seconds, limits)
            count = max(1, min(frames, limits.max_frames, math.ceil(seconds * frames_per_second)))
            moments = [(index + 0.5) * seconds / count for index in range(count)]
            taken = list(_frames_at(container, stream, moments, limits))
        except MediaError:
            raise
        except (av.error.FFmpegError, ValueError) as error:
            raise MediaUnreadableError(f"the video could not be decoded ({error})") from error
    if not taken:
        raise MediaUnreadableError("the video holds no frame that can be decoded: it is truncated or corrupt")
    return Clip(taken, _sound(data, limits), seconds)


def has_pictures(data: bytes) -> bool:
    """Whether a file of a kind that can hold films holds one, rather than sound alone.

    Raises:
        MediaUnreadableError: Empty, truncated or corrupt.
        MediaUnsupportedError: Not a sound or video file.
    """
    with open_container(data, "video") as container:
        return _picture_stream(container) is not None


def _picture_stream(container: InputContainer) -> VideoStream | None:
    for stream in container.streams.video:
        # The cover of a song is a video stream of one frame to FFmpeg.
        if not stream.disposition & Disposition.attached_pic:
            return stream
    return None


def _sound(data: bytes, limits: MediaLimits) -> Samples | None:
    # Opened anew: the picture's seeks have left the first container somewhere else.
    with open_container(data, "video") as container:
        if not container.streams.audio:
            return None
        try:
            return decode_track(container, container.streams.audio[0], limits)
        except MediaUnreadableError:
            return None  # the picture is there; a broken sound track does not take it away


def _check_pixels(width: int, height: int, limits: MediaLimits) -> None:
    if width * height > limits.max_pixels:
        raise MediaTooLargeError(
            f"the video's frames are {width} × {height} = {width * height:,} pixels; "
            f"at most {limits.max_pixels:,} are taken",
            width=width,
            height=height,
            max_pixels=limits.max_pixels,
        )


def _seconds(container: InputContainer, stream: VideoStream) -> float:
    """Length from the header, or from the last time stamp where the header names none (live recordings)."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None:
        return container.duration / av.time_base
    last = max((_end_s(packet) for packet in container.demux(stream)), default=0.0)
    container.seek(0)
    return max(0.0, last - _start_s(stream))


def _end_s(packet: av.Packet[VideoStream]) -> float:
    if packet.pts is None or packet.time_base is None:
        return 0.0
    return float((packet.pts + (packet.duration or 0)) * packet.time_base)


def _start_s(stream: VideoStream) -> float:
    if stream.start_time is None or stream.time_base is None:
        return 0.0
    return float(stream.start_time * stream.time_base)


def _frames_at(
    container: InputContainer, stream: VideoStream, moments: list[float], limits: MediaLimits
) -> Iterator[Frame]:
    """The frame on show at each moment (ascending, in seconds); one that is on show at two is given once."""
    start_s = _start_s(stream)
    source = _decoded(container, stream, start_s)
    shown: tuple[float, av.VideoFrame] | None = None
    following = next(source, None)
    given_s: float | None = None
    for moment in moments:
        if following is not None and moment - following[0] > SEEK_AHEAD_S and stream.time_base:
            container.seek(int((moment + start_s) / stream.time_base), stream=stream, backward=True)
            source = _decoded(container, stream, start_s)
            following = next(source, None)
        while following is not None and (following[0] <= moment or shown is None):
            shown, following = following, next(source, None)
        if shown is not None and shown[0] != given_s:
            given_s = shown[0]
            _check_pixels(shown[1].width, shown[1].height, limits)
            yield Frame(_upright(shown[1]), given_s)


def _decoded(container: InputContainer, stream: VideoStream, start_s: float) -> Iterator[tuple[float, av.VideoFrame]]:
    for packet in container.demux(stream):
        try:
            for frame in packet.decode():
                if frame.time is not None:
                    yield max(0.0, frame.time - start_s), frame
        except av.error.InvalidDataError:
            continue  # a damaged packet costs its frames; no frame at all is an error, told by the caller


def _upright(frame: av.VideoFrame) -> Image.Image:
    """RGB, turned as the display matrix of a phone's recording says."""
    pixels = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4
    return Image.fromarray(np.ascontiguousarray(np.rot90(pixels, turns)))
