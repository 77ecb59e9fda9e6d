"""Sound from any file that PyAV reads, decoded as a stream to mono at the speech models' rate."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import av
import numpy as np
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from bus.errors import MediaError, MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.sniff import sniff

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer

SAMPLE_RATE_HZ = 16_000
"""What the speech models take."""

Samples = NDArray[np.float32]

_RATES_HZ = (1_000, 6_144_000)
"""Below it nothing can be heard, and a few bytes would claim hours; above it nobody records."""

_GUESSED = ("mp3", "aac", "amr", "mpegts", "mpeg")
"""Formats without a length in the header: FFmpeg guesses it from the first packets' bit rate."""

_SIDE_GAIN = 0.5**0.5
_GAINS = {"FL": 1.0, "FR": 1.0, "FC": 1.0, "LFE": 0.0, "LFE2": 0.0}
_USUAL = {
    6: ["FL", "FR", "FC", "LFE", "BL", "BR"],
    8: ["FL", "FR", "FC", "LFE", "BL", "BR", "SL", "SR"],
}


def decode(data: bytes, limits: MediaLimits, *, sample_rate_hz: int = SAMPLE_RATE_HZ) -> Samples:
    """The first sound track of a file.

    Args:
        data: The file: any container, codec, rate and channel layout that PyAV reads.
        limits: The length is checked in the header and again while decoding, so nothing longer is ever held.
        sample_rate_hz: Of the result.

    Returns:
        float32 (sample,), mono, in [-1, 1].

    Raises:
        MediaTooLargeError: Longer than allowed.
        MediaUnsupportedError: Not media, or media without sound.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    with open_container(data, "audio") as container:
        if not container.streams.audio:
            raise MediaUnsupportedError("the file has no audio stream; send one with sound")
        return decode_track(container, container.streams.audio[0], limits, sample_rate_hz=sample_rate_hz)


def open_container(data: bytes, what: str) -> InputContainer:
    """Open a media file; the caller closes it.

    Raises:
        MediaUnreadableError: Empty, truncated or corrupt.
        MediaUnsupportedError: Not a container that is known.
    """
    if not data:
        raise MediaUnreadableError(f"the {what} is empty: it has 0 bytes; send the file's content")
    kind = sniff(data)
    if kind is None or not kind.demuxer:
        found = "of no known format" if kind is None else kind.media_type
        raise MediaUnsupportedError(f"{len(data)} bytes sent as {what} are {found}; send a sound or video file")
    try:
        return av.open(io.BytesIO(data), mode="r", format=kind.demuxer, metadata_errors="ignore")
    except (av.error.FFmpegError, ValueError) as error:
        raise MediaUnreadableError(
            f"{len(data)} bytes of {kind.media_type} are truncated or corrupt ({error}); send the whole file"
        ) from error


def decode_track(
    container: InputContainer,
    stream: AudioStream,
    limits: MediaLimits,
    *,
    sample_rate_hz: int = SAMPLE_RATE_HZ,
) -> Samples:
    """One sound track of an open file; see `decode`."""
    if stream.codec_context is None:
        raise MediaUnsupportedError("the file's sound is of a codec that is not known here")
    expected_s = claimed_seconds(container, stream)
    if expected_s is None:
        expected_s = _counted_seconds(container, stream, limits)
    check_seconds(expected_s, limits)
    most = int(limits.max_seconds * sample_rate_hz)
    held = _Held(int((expected_s + 1.0) * sample_rate_hz))
    try:
        for part in _resampled(container, stream, sample_rate_hz):
            held.add(part)
            if held.count > most:
                check_seconds(held.count / sample_rate_hz, limits)
    except MediaError:
        raise
    except (av.error.FFmpegError, ValueError) as error:
        raise MediaUnreadableError(f"the audio could not be decoded ({error})") from error
    if not held.count:
        raise MediaUnreadableError("the audio holds no sound that can be decoded: it is truncated or corrupt")
    return held.samples()


class _Held:
    """Samples as they come, in one place: an hour of sound is held once, not in pieces and again as a whole.

    Args:
        expected: How many there will be, about; memory that is never written costs nothing.
    """

    def __init__(self, expected: int) -> None:
        self._room = np.empty(max(1, expected), np.float32)
        self.count = 0

    def add(self, part: Samples) -> None:
        end = self.count + len(part)
        if end > len(self._room):  # the file is longer than it says
            more = np.empty(max(end, 2 * len(self._room)), np.float32)
            more[: self.count] = self._room[: self.count]
            self._room = more
        # Float formats can hold what is no number.
        np.clip(np.nan_to_num(part), -1.0, 1.0, out=self._room[self.count : end])
        self.count = end

    def samples(self) -> Samples:
        return self._room[: self.count]


def claimed_seconds(container: InputContainer, stream: AudioStream) -> float | None:
    """Length that the header names, in seconds; None when it names none that can be trusted."""
    if container.format.name in _GUESSED:
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return None if container.duration is None else container.duration / av.time_base


def _counted_seconds(container: InputContainer, stream: AudioStream, limits: MediaLimits) -> float:
    """Length by the packets, which are counted without decoding them, until there are too many."""
    seconds = 0.0
    try:
        for packet in container.demux(stream):
            if packet.duration and packet.time_base is not None:
                seconds += float(packet.duration * packet.time_base)
            if seconds > limits.max_seconds:
                break
        container.seek(0)
    except av.error.FFmpegError as error:
        raise MediaUnreadableError(f"the audio could not be read ({error})") from error
    return seconds


def check_seconds(seconds: float, limits: MediaLimits) -> None:
    """Refuse what is too long.

    Raises:
        MediaTooLargeError: Longer than allowed.
    """
    if seconds > limits.max_seconds:
        raise MediaTooLargeError(
            f"the media is {seconds:,.0f} s long or longer; at most {limits.max_seconds:,.0f} s are taken",
            seconds=seconds,
            max_seconds=limits.max_seconds,
        )


def _resampled(container: InputContainer, stream: AudioStream, sample_rate_hz: int) -> Iterator[Samples]:
    """Mono pieces at the wanted rate, one or more per decoded frame."""
    resampler: av.AudioResampler | None = None
    shape: tuple[int, str, str] | None = None
    for frame in _frames(container, stream):
        frame.pts = None  # gaps between time stamps are not sound, and a container's clock may start anywhere
        found = (frame.sample_rate, frame.layout.name, frame.format.name)
        if resampler is None or found != shape:
            if resampler is not None:
                yield from (_mono(out) for out in resampler.resample(None))
            _check_rate(frame.sample_rate)
            shape = found
            resampler = av.AudioResampler(format="flt", layout=frame.layout, rate=sample_rate_hz)
        yield from (_mono(out) for out in resampler.resample(frame))
    if resampler is not None:
        yield from (_mono(out) for out in resampler.resample(None))


def _check_rate(rate_hz: int) -> None:
    if not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
        raise MediaUnsupportedError(
            f"the sound has {rate_hz:,} samples a second; {_RATES_HZ[0]:,} to {_RATES_HZ[1]:,} are taken"
        )


def _frames(container: InputContainer, stream: AudioStream) -> Iterator[av.AudioFrame]:
    """Decoded frames; damaged packets are left out as long as they are the lesser part."""
    good = bad = 0
    for packet in container.demux(stream):
        try:
            for frame in packet.decode():
                good += 1
                yield frame
        except av.error.InvalidDataError as error:
            bad += 1
            if bad > 8 and bad > good:
                raise MediaUnreadableError(
                    f"the audio is corrupt: {bad} of {bad + good} packets do not decode"
                ) from error


def _mono(frame: av.AudioFrame) -> Samples:
    """One channel out of all: each speaker by its weight, no subwoofer, never louder than the loudest."""
    names = [channel.name for channel in frame.layout.channels]
    # One packed plane: PyAV reads beyond the frame where there are more planes than eight.
    packed = frame.to_ndarray().astype(np.float32, copy=False).reshape(-1, len(names))
    if names[0] == "NONE":  # a container that only counts its channels
        names = _USUAL.get(len(names), ["FC"] * len(names))
    gains = np.array([_GAINS.get(name, _SIDE_GAIN) for name in names])
    if len(names) == 1 or not gains.any():
        gains = np.ones(len(names))
    return np.asarray(packed @ (gains / gains.sum()), dtype=np.float32)
