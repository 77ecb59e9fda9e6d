"""Log-mel spectrograms as Whisper takes them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
WINDOW = 400
"""Samples of one analysis window: 25 ms."""

HOP = 160
"""Samples between two frames (the hop length): 10 ms."""

_AT_ONCE = 3000
"""Frames whose windows are in memory together: an hour of sound takes no more for it than half a minute."""

_BREAK_HZ, _LINEAR_MELS = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27.0


def log_mel(samples: NDArray[np.float32], *, frames: int, mels: int = 80) -> NDArray[np.float32]:
    """A clip as mel frames, padded with silence or cut to a fixed length.

    Args:
        samples: float32 (sample,), mono, 16 kHz, in [-1, 1].
        frames: How many 10 ms frames to give.
        mels: Mel bands.

    Returns:
        float32 (mel, frame): log10 of the power, no lower than 8 below its peak, scaled to about [-1, 1].

    Source:
        `log_mel_spectrogram` of OpenAI's Whisper; the mel scale is Slaney's.
    """
    padded = np.zeros(frames * HOP + WINDOW, np.float32)
    kept = samples[: frames * HOP + WINDOW // 2]
    padded[WINDOW // 2 : WINDOW // 2 + len(kept)] = kept
    # Windows are centred on their frame; before the first sample the signal is mirrored.
    head = padded[WINDOW // 2 + 1 : WINDOW + 1][::-1]
    padded[: WINDOW // 2] = head
    if len(samples) >= frames * HOP:
        tail = frames * HOP + WINDOW // 2
        padded[tail:] = padded[tail - WINDOW // 2 - 1 : tail - 1][::-1]
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: frames * HOP : HOP]
    levels = np.empty((mels, frames))
    for start in range(0, frames, _AT_ONCE):
        spectrum = np.fft.rfft(windows[start : start + _AT_ONCE] * _hann(), axis=1)
        power = spectrum.real**2 + spectrum.imag**2
        levels[:, start : start + _AT_ONCE] = np.log10(np.maximum(_filters(mels) @ power.T, 1e-10))
    np.maximum(levels, levels.max() - 8.0, out=levels)
    levels += 4.0
    levels /= 4.0
    return levels.astype(np.float32)


@lru_cache(maxsize=1)
def _hann() -> NDArray[np.float64]:
    """The periodic Hann window: one sample longer, without its last."""
    return np.hanning(WINDOW + 1)[:-1]


@lru_cache(maxsize=4)
def _filters(mels: int) -> NDArray[np.float64]:
    """Triangles of equal area over the spectrum, (mel, bin)."""
    bins = np.fft.rfftfreq(WINDOW, 1.0 / SAMPLE_RATE_HZ)
    edges = _hertz(np.linspace(0.0, _mel(SAMPLE_RATE_HZ / 2), mels + 2))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = np.maximum(0.0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)))
    return np.asarray(triangles * (2.0 / (high - low)))


def _mel(hertz: float) -> float:
    """Slaney's scale: linear to 1 kHz, logarithmic above."""
    if hertz < _BREAK_HZ:
        return hertz * _LINEAR_MELS / _BREAK_HZ
    return _LINEAR_MELS + float(np.log(hertz / _BREAK_HZ) / _LOG_STEP)


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _LINEAR_MELS))
    return np.where(mel < _LINEAR_MELS, mel * _BREAK_HZ / _LINEAR_MELS, above)
