"""Sounds that the tests synthesise themselves."""

from __future__ import annotations

import io
import wave
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def tone(frequency_hz: float, seconds: float, sample_rate_hz: int, amplitude: float = 0.5) -> NDArray[np.float32]:
    """A sine."""
    time_s = np.arange(int(seconds * sample_rate_hz)) / sample_rate_hz
    return (amplitude * np.sin(2 * np.pi * frequency_hz * time_s)).astype(np.float32)


def wav(channels: NDArray[np.float32], sample_rate_hz: int) -> bytes:
    """16-bit WAV of (channel, sample), written by the standard library."""
    channels = np.atleast_2d(channels)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(sample_rate_hz)
        file.writeframes((channels.T * 32767).round().astype("<i2").tobytes())
    return out.getvalue()


def encoded(
    channels: NDArray[np.float32], sample_rate_hz: int, container: str, codec: str, layout: str, **options: Any
) -> bytes:
    """(channel, sample) in any container and codec that FFmpeg writes."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=sample_rate_hz, layout=layout, **options)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(np.atleast_2d(channels)), format="fltp", layout=layout)
        frame.sample_rate = sample_rate_hz
        resampler = av.AudioResampler(
            format=stream.codec_context.format, layout=layout, rate=sample_rate_hz, frame_size=1024
        )
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            file.mux(stream.encode(piece))
        file.mux(stream.encode(None))
    return out.getvalue()


def loudest_hz(samples: NDArray[np.float32], sample_rate_hz: int) -> float:
    """Frequency of the strongest line of the spectrum."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * sample_rate_hz / len(samples))
