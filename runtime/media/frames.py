"""Frames of an open video at chosen moments: what lies between two keyframes that nobody asked for is not decoded."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import numpy as np
from PIL import Image

from bus.contracts import MediaLimits
from bus.errors import MediaTooLargeError, MediaUnreadableError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

SEEK_AHEAD_S = 2.0
"""Where a container does not say where its keyframes are: a moment nearer than this is reached by decoding on, as a
seek would mostly land on one that is passed already."""

_INDEXED = ("mov", "matroska")
"""Formats whose index says which frames are keyframes; where FFmpeg makes one as it reads, it says too much."""

_NEARLY = 0.98
"""Distances between keyframes are the same from this share on: some frames are not there."""

_Shown = tuple[float, av.VideoFrame]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame.

    Attributes:
        image: RGB, upright.
        time_s: When it is first shown, in seconds from the start of the video.
    """

    image: Image.Image
    time_s: float


class FrameReader:
    """Reads one video stream forward.

    A damaged frame is passed over, and with it those up to the next keyframe, which were made from it: what was on show
    before them stays on show.

    Args:
        container: The open file.
        stream: Its picture.
        limits: For the pixels of every frame: a stream may change its size.

    Attributes:
        start_s: The stream's own clock at the start of the video.
        decoded: Frames decoded so far.
        damaged_s: Where the damage is, in seconds.
    """

    def __init__(self, container: InputContainer, stream: VideoStream, limits: MediaLimits) -> None:
        self._container, self._stream, self._limits = container, stream, limits
        self.start_s = start_s(stream)
        self.decoded = 0
        self.damaged_s: list[float] = []
        # Else a decoder paints over what is damaged, and what it makes of that looks like a picture.
        stream.codec_context.options = {"err_detect": "explode"}
        self._keyframes = _keyframes(stream, self.start_s)
        self._no_further = False
        self._source = self._frames()
        self._shown: _Shown | None = None
        self._following: _Shown | None = None

    def at(self, moments: Sequence[float]) -> Iterator[Frame]:
        """The frame on show at each moment, one by one; one that is on show at several is given for each of them.

        Args:
            moments: In seconds from the start, ascending, none before where the reader is.

        Raises:
            MediaTooLargeError: A frame of more pixels than allowed.
            MediaUnreadableError: Nothing that can be decoded, at any moment up to the one asked for.
        """
        given: Frame | None = None
        for moment in moments:
            self._go_to(moment)
            if self._shown is None:
                raise MediaUnreadableError(self._nothing_at(moment), second=moment)
            if given is None or given.time_s != self._shown[0]:
                given = Frame(self._picture(self._shown[1]), self._shown[0])
            yield given

    def cuts(self, end_s: float) -> list[float]:
        """Where the scene changes, in seconds, as far as whoever encoded the video saw it; nothing is decoded.

        An encoder begins a scene with a keyframe, and otherwise makes one when the last is as long ago as may be: those
        at the longest distance, where there are several of them, say nothing.

        Args:
            end_s: Length of the video.
        """
        if not any(name in self._container.format.name for name in _INDEXED):
            return []
        if not self._complete():
            self._read_index(end_s)
        gaps = [later - earlier for earlier, later in pairwise(self._keyframes)]
        longest = [gap >= _NEARLY * max(gaps) for gap in gaps]
        by_the_clock = sum(longest) > 1
        known = zip(self._keyframes[1:], longest, strict=True)
        return [time for time, forced in known if not (forced and by_the_clock)]

    def _read_index(self, end_s: float) -> None:
        """Go to the end and back: some containers tell where keyframes are only when they are asked to go there."""
        for second in (end_s, 0.0):
            try:
                self._seek_to(second)
            except av.error.FFmpegError:  # what is behind is cut off, which is no reason not to look at what is there
                continue
        self._keyframes = _keyframes(self._stream, self.start_s)
        self._source, self._shown, self._following = self._frames(), None, None

    def _seek_to(self, second: float) -> None:
        if self._stream.time_base is not None:
            place = int((second + self.start_s) / self._stream.time_base)
            self._container.seek(place, stream=self._stream, backward=True)

    def _complete(self) -> bool:
        return 0 < self._stream.frames <= len(self._stream.index_entries)

    def _go_to(self, moment: float) -> None:
        if self._following is None and self._shown is None:
            self._following = next(self._source, None)
        if self._following is not None and self._worth_seeking(self._following[0], moment):
            self._seek(self._following[0], moment)
        while self._following is not None and (self._following[0] <= moment or self._shown is None):
            self._shown, self._following = self._following, next(self._source, None)

    def _worth_seeking(self, here: float, moment: float) -> bool:
        if self._keyframe_before(moment) > here:
            return True
        # Some containers have no index, and some one that is read as far as one went.
        return not self._complete() and moment - here > SEEK_AHEAD_S and not self._no_further

    def _keyframe_before(self, moment: float) -> float:
        place = bisect.bisect_right(self._keyframes, moment)
        return self._keyframes[place - 1] if place else 0.0

    def _seek(self, here: float, moment: float) -> None:
        """Go to the keyframe that a moment needs, or to one before it."""
        back_s = 0.0
        while self._stream.time_base:
            target = max(0.0, moment - back_s)
            self._seek_to(target)
            self._source = self._frames()
            self._following = next(self._source, None)
            if target == 0.0 or (self._following is not None and self._following[0] <= moment):
                break
            # An index in the order of decoding names keyframes that are shown later; without one, a seek ends anywhere,
            # and the first frame that can be decoded from there is too late.
            back_s = max(SEEK_AHEAD_S, 2 * back_s)
        self._keyframes = _keyframes(self._stream, self.start_s)
        # Not again before the next keyframe went by: it would be decoded from here anew for every moment.
        self._no_further = self._following is not None and self._following[0] <= here

    def _frames(self) -> Iterator[_Shown]:
        """Whole frames from where the container stands, with their times from the start."""
        whole, damaged = True, set[int | None]()
        for packet in self._container.demux(self._stream):
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                # What was made of its first half is given out all the same.
                damaged.add(packet.pts)
                self._note(packet)
                whole = False
                continue
            for frame in frames:
                self.decoded += 1
                self._no_further = self._no_further and not frame.key_frame
                broken = frame.is_corrupt or frame.pts in damaged
                whole = not broken and (whole or bool(frame.key_frame))
                if broken:
                    self._note(frame)
                elif whole and frame.time is not None:
                    yield max(0.0, frame.time - self.start_s), frame

    def _note(self, damaged: av.Packet[VideoStream] | av.VideoFrame) -> None:
        if damaged.pts is not None and damaged.time_base is not None:
            self.damaged_s.append(float(damaged.pts * damaged.time_base) - self.start_s)

    def _nothing_at(self, moment: float) -> str:
        if self.damaged_s:
            return f"the video is damaged at second {self.damaged_s[0]:.2f}, and no frame before it can be decoded"
        return f"the video holds no frame that can be decoded at second {moment:.2f}: it is truncated or corrupt"

    def _picture(self, frame: av.VideoFrame) -> Image.Image:
        """RGB, turned as the display matrix of a phone's recording says."""
        check_pixels(frame.width, frame.height, self._limits)
        pixels = frame.to_ndarray(format="rgb24")
        turns = round(frame.rotation / 90) % 4
        return Image.fromarray(np.ascontiguousarray(np.rot90(pixels, turns)))


def start_s(stream: VideoStream) -> float:
    """What a stream's clock says at its first frame, in seconds."""
    if stream.start_time is None or stream.time_base is None:
        return 0.0
    return float(stream.start_time * stream.time_base)


def check_pixels(width: int, height: int, limits: MediaLimits) -> None:
    """Refuse frames that are too large.

    Raises:
        MediaTooLargeError: More pixels than allowed.
    """
    if width * height > limits.max_pixels:
        raise MediaTooLargeError(
            f"the video's frames are {width} × {height} = {width * height:,} pixels; "
            f"at most {limits.max_pixels:,} are taken",
            width=width,
            height=height,
            max_pixels=limits.max_pixels,
        )


def _keyframes(stream: VideoStream, start: float) -> list[float]:
    """Seconds of the keyframes that the container's index names; empty: it has none."""
    if stream.time_base is None:
        return []
    clock = float(stream.time_base)
    times = sorted(entry.timestamp * clock for entry in stream.index_entries if entry.is_keyframe)
    # Some indexes say when a frame is decoded, which is as long before it is shown for all of them.
    return [time - times[0] for time in times] if times and times[0] < start else [time - start for time in times]
