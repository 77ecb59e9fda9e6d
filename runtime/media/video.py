"""Frames of a video at chosen moments, by their real time stamps, without decoding what lies between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av
from av.stream import Disposition

from bus.contracts import MediaLimits
from bus.errors import MediaError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.audio import Samples, check_seconds, decode_track, open_container
from runtime.media.frames import Frame, FrameReader, check_pixels, start_s

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream


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


@dataclass(frozen=True, slots=True)
class Video:
    """An open video.

    Attributes:
        frames: Reads its picture.
        seconds: Its length.
        frames_per_second: How many frames it has in a second, on average.
        width: Of a frame as it is stored, in pixels.
        height: Of a frame as it is stored, in pixels.
    """

    frames: FrameReader
    seconds: float
    frames_per_second: float
    width: int
    height: int


@contextmanager
def open_video(data: bytes, limits: MediaLimits) -> Iterator[Video]:
    """Open a video, so that its frames can be taken one by one: never are all of them in memory.

    Args:
        data: The file.
        limits: Length and pixels are checked in the header.

    Raises:
        MediaTooLargeError: Longer, or of more pixels, than allowed.
        MediaUnsupportedError: Not a video, or one without a picture.
        MediaUnreadableError: Empty, truncated or corrupt; also while frames are taken.
    """
    with open_container(data, "video") as container:
        stream = _picture_stream(container)
        if stream is None:
            raise MediaUnsupportedError("the file has no video stream; send one with pictures, or send it as audio")
        if stream.codec_context is None:
            raise MediaUnsupportedError("the file's video is of a codec that is not known here")
        width, height = stream.codec_context.width, stream.codec_context.height
        check_pixels(width, height, limits)
        try:
            seconds = _seconds(container, stream)
            check_seconds(seconds, limits)
            yield Video(FrameReader(container, stream, limits), seconds, _rate(stream, seconds), width, height)
        except MediaError:
            raise
        except (av.error.FFmpegError, ValueError) as error:
            raise MediaUnreadableError(f"the video could not be decoded ({error})") from error


def decode(data: bytes, limits: MediaLimits, *, frames: int, frames_per_second: float) -> Clip:
    """Sample a video by time and decode its sound.

    Args:
        data: The file.
        limits: Length and pixels are checked in the header; `max_frames` bounds `frames`.
        frames: The most frames to take; one that is on show at two of their moments is given once.
        frames_per_second: How densely to sample as long as that gives no more than `frames`.

    Raises:
        MediaTooLargeError: Longer, or of more pixels, than allowed.
        MediaUnsupportedError: Not a video, or one without a picture.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    with open_video(data, limits) as video:
        count = max(1, min(frames, limits.max_frames, math.ceil(video.seconds * frames_per_second)))
        moments = [(index + 0.5) * video.seconds / count for index in range(count)]
        taken = {frame.time_s: frame for frame in video.frames.at(moments)}
        seconds = video.seconds
    return Clip(list(taken.values()), sound(data, limits), seconds)


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


def sound(data: bytes, limits: MediaLimits) -> Samples | None:
    """The sound track of a video, float32 `(sample,)`, mono, 16 kHz; None: there is none that can be decoded.

    Raises:
        MediaTooLargeError: Longer than allowed.
        MediaUnsupportedError: Not a video.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    # Opened anew: the picture's seeks have left its container somewhere else.
    with open_container(data, "video") as container:
        if not container.streams.audio:
            return None
        try:
            return decode_track(container, container.streams.audio[0], limits)
        except MediaUnreadableError:
            return None  # the picture is there; a broken sound track does not take it away


def _rate(stream: VideoStream, seconds: float) -> float:
    """Frames in a second; what FFmpeg makes of the first ones is a guess, and some containers count them all."""
    if stream.frames and seconds:
        return stream.frames / seconds
    for rate in (stream.guessed_rate, stream.average_rate):
        if rate:
            return float(rate)
    return 25.0


def _seconds(container: InputContainer, stream: VideoStream) -> float:
    """Length from the header, or from the last time stamp where the header names none (live recordings)."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is not None:
        return container.duration / av.time_base
    last = max((_end_s(packet) for packet in container.demux(stream)), default=0.0)
    container.seek(0)
    return max(0.0, last - start_s(stream))


def _end_s(packet: av.Packet[VideoStream]) -> float:
    if packet.pts is None or packet.time_base is None:
        return 0.0
    return float((packet.pts + (packet.duration or 0)) * packet.time_base)
