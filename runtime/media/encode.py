"""Sound to a file."""

from __future__ import annotations

import io
import wave
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
    if kind not in FORMATS:
        raise InvalidInputError(f"format {kind!r} is not one of {', '.join(FORMATS)}", format=kind)
    form = FORMATS[kind]
    whole = (np.clip(samples, -1.0, 1.0) * 32767.0).round().astype("<i2")
    if kind == "pcm":
        return whole.tobytes(), form.media_type
    if kind == "wav":
        return _wav(whole, sample_rate_hz), form.media_type
    return _compressed(whole, sample_rate_hz, form), form.media_type


def _wav(samples: NDArray[np.int16], sample_rate_hz: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def _compressed(samples: NDArray[np.int16], sample_rate_hz: int, form: _Format) -> bytes:
    rate = sample_rate_hz
    if form.rates_hz and rate not in form.rates_hz:
        rate = next((one for one in form.rates_hz if one >= rate), form.rates_hz[-1])
    out = io.BytesIO()
    # Without this flag a container gets a random serial number, and a repeated stage another digest.
    with av.open(out, "w", format=form.container, options={"fflags": "+bitexact"}) as container:
        stream: Any = container.add_stream(form.codec, rate=rate, layout="mono", options={"flags": "+bitexact"})
        stream.format = form.sample_format
        if form.bit_rate is not None:
            stream.bit_rate = form.bit_rate
        stream.codec_context.open()
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = sample_rate_hz, 0
        resampler = av.AudioResampler(
            form.sample_format, "mono", rate, frame_size=stream.codec_context.frame_size or 4096
        )
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return out.getvalue()
