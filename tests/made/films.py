"""Films that the tests draw themselves."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def film(
    times_ms: Sequence[int],
    *,
    width: int = 64,
    height: int = 48,
    container: str = "matroska",
    codec: str = "libx264",
    samples: NDArray[np.float32] | None = None,
    keyframe_every: int = 12,
    drawn: Callable[[int], NDArray[np.uint8]] | None = None,
) -> bytes:
    """One frame per time stamp, frame i of grey level `grey(i)` or as it is drawn, uint8 (height, width, 3).

    `samples` are mono sound at 16 kHz.
    """
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=1000)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        stream.codec_context.gop_size = keyframe_every
        sound: Any = None if samples is None else file.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for index, time_ms in enumerate(times_ms):
            pixels = np.full((height, width, 3), grey(index), np.uint8) if drawn is None else drawn(index)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        if sound is not None and samples is not None:
            resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000, frame_size=1024)
            whole = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
            whole.sample_rate = 16_000
            for piece in [*resampler.resample(whole), *resampler.resample(None)]:
                file.mux(sound.encode(piece))
            file.mux(sound.encode(None))
    return out.getvalue()


def grey(index: int) -> int:
    """Level of frame `index`; neighbours differ by far more than a codec's noise."""
    return 20 + (index * 37) % 210


def drifting(width: int, height: int) -> Callable[[int], NDArray[np.uint8]]:
    """A pattern that moves by a pixel a frame, so that every frame is made from the one before it."""
    texture = (
        np.random.default_rng(3).integers(0, 255, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    )
    return lambda index: np.roll(texture, index, axis=1)
