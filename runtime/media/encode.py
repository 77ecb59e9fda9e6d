"""Sound to a file."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class _Format:
    media_type: str
    container: str = ""
    codec: str = ""
    sample_format: str = ""
    bit_rate: int | None = None
    rates_hz: tuple[int, ...] = ()


FORMATS = {
    "wav": _Format("audio/wav"),
    "pcm": _Format("audio/pcm"),
    "mp3": _Format("audio/mpeg", "mp3", "libmp3lame", "s16p", 64_000, (16_000, 22_050, 24_000, 32_000, 44_100, 48_000)),
    "opus": _Format("audio/ogg", "ogg", "libopus", "s16", 32_000, (8_000, 12_000, 16_000, 24_000, 48_000)),
    "flac": _Format("audio/flac", "flac", "flac", "s16"),
}
"""By the names that speech requests use; `pcm` is 16-bit little-endian mono without a header."""


def encode(samples: NDArray[np.float32], sample_rate_hz: int, kind: str) -> tuple[bytes, str]:
    """Mono sound as a file; the same sound gives the same bytes.

    Args:
        samples: float32 (sample,), in [-1, 1]; louder is clipped.
        sample_rate_hz: Of the samples; kept where the format allows it.
        kind: A key of `FORMATS`.

    Returns:
        The file and its MIME type.

    Raises:
        InvalidInputError: An unknown format.
    """
    form = _form(kind)
    if kind == "wav":
        return _wav(_whole(samples), sample_rate_hz), form.media_type
    encoder = SoundEncoder(kind, sample_rate_hz, out=io.BytesIO())
    return encoder.add(samples) + encoder.finish(), form.media_type


class SoundEncoder:
    """One file out of pieces of mono sound: what `add` and `finish` give, one after the other, is the file.

    A file that is sent while it is made cannot tell its length in its header; players read it to its end.

    Args:
        kind: A key of `FORMATS`.
        sample_rate_hz: Of the samples; kept where the format allows it.
        out: Where the file is put together; one that can be wound back gets its length into its header, and is given
            as a whole by `finish`.

    Raises:
        InvalidInputError: An unknown format.
    """

    def __init__(self, kind: str, sample_rate_hz: int, *, out: io.BytesIO | None = None) -> None:
        self._form, self._rate_hz, self._count = _form(kind), sample_rate_hz, 0
        self.media_type = self._form.media_type
        self._out: io.BytesIO | _Pipe = out or _Pipe()
        self._packer = _Packer(self._form, sample_rate_hz, self._out) if self._form.container else None

    def add(self, samples: NDArray[np.float32]) -> bytes:
        """The next part of the file.

        Args:
            samples: float32 (sample,), in [-1, 1]; louder is clipped.
        """
        whole = _whole(samples)
        head = _endless_wav(self._rate_hz) if self._form.media_type == "audio/wav" and not self._count else b""
        self._count += 1
        if self._packer is None:
            return head + whole.tobytes()
        if len(whole):
            self._packer.add(whole)
        return self._out.take() if isinstance(self._out, _Pipe) else b""

    def finish(self) -> bytes:
        """The last part; nothing can be added any more."""
        if self._packer is None:
            return b""
        self._packer.close()
        return self._out.take() if isinstance(self._out, _Pipe) else self._out.getvalue()


class _Pipe:
    """A file that can only be written, and read once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


class _Packer:
    """An encoder and its container."""

    def __init__(self, form: _Format, sample_rate_hz: int, out: io.BytesIO | _Pipe) -> None:
        rate = sample_rate_hz
        if form.rates_hz and rate not in form.rates_hz:
            rate = next((one for one in form.rates_hz if one >= rate), form.rates_hz[-1])
        # Without this flag a container gets a random serial number, and a repeated stage another digest.
        options = {"fflags": "+bitexact"}
        if isinstance(out, _Pipe) and form.container == "mp3":
            options["write_xing"] = "0"  # a head that would have to be filled in at the end
        self._container = av.open(out, "w", format=form.container, options=options)
        stream: Any = self._container.add_stream(form.codec, rate=rate, layout="mono", options={"flags": "+bitexact"})
        stream.format = form.sample_format
        if form.bit_rate is not None:
            stream.bit_rate = form.bit_rate
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 4096
        self._stream, self._rate_hz, self._at = stream, sample_rate_hz, 0
        self._resampler = av.AudioResampler(form.sample_format, "mono", rate, frame_size=size)

    def add(self, samples: NDArray[np.int16]) -> None:
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = self._rate_hz, self._at
        self._at += len(samples)
        self._mux(self._resampler.resample(frame))

    def close(self) -> None:
        self._mux(self._resampler.resample(None))
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _mux(self, frames: Iterable[av.AudioFrame]) -> None:
        for frame in frames:
            self._container.mux(self._stream.encode(frame))


def _form(kind: str) -> _Format:
    if kind not in FORMATS:
        raise InvalidInputError(f"format {kind!r} is not one of {', '.join(FORMATS)}", format=kind)
    return FORMATS[kind]


def _whole(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    return (np.clip(samples, -1.0, 1.0) * 32767.0).round().astype("<i2")


def _endless_wav(sample_rate_hz: int) -> bytes:
    """A head that says of both lengths that they are not known, as programs that write to a pipe do."""
    unknown = b"\xff\xff\xff\xff"
    form = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    return b"RIFF" + unknown + b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + unknown


def _wav(samples: NDArray[np.int16], sample_rate_hz: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        file.writeframes(samples.tobytes())
    return out.getvalue()
