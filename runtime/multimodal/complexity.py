"""How much there is to see or to hear: what a budget of tokens follows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from runtime.multimodal.prepared import Floats

if TYPE_CHECKING:
    from PIL.Image import Image

_SIDE, _FRAME_SIDE = 256, 64
_EDGE, _CHANGE = 24, 16
"""Steps of grey, of 255, that are an edge or a change rather than noise."""

_WINDOW_S, _RATE_HZ = 0.025, 16_000
_FAINT, _SILENT = 0.1, 10 ** (-50 / 20)
"""Of the loud parts of a clip, and of full scale (-50 dB): what is softer than either is no sound."""


def image_complexity(picture: Image) -> float:
    """Of a picture, from 0 for a blank one to 1 for noise: the root of edge density times entropy.

    Entropy alone takes a smooth sky for busy, edges alone a chessboard.

    Args:
        picture: RGB; looked at in at most 256 × 256 pixels.
    """
    grey = _grey(picture, _SIDE)
    if min(grey.shape) < 2:
        return 0.0
    across = np.abs(np.diff(grey, axis=1))[:-1]
    down = np.abs(np.diff(grey, axis=0))[:, :-1]
    edges = float((np.maximum(across, down) > _EDGE).mean())
    return float(np.sqrt(edges * _entropy(grey)))


def video_complexity(frames: Sequence[Image]) -> float:
    """Of a film, from 0 for a still to 1 where everything changes: the share of pixels that change between frames."""
    greys = [_grey(frame, _FRAME_SIDE) for frame in frames]
    moved = [
        float((np.abs(one - other) > _CHANGE).mean()) if one.shape == other.shape else 1.0
        for one, other in pairwise(greys)
    ]
    return float(np.mean(moved)) if moved else 0.0


def audio_complexity(samples: Floats) -> float:
    """Of a clip, from 0 for silence to 1 where there is always sound: the share of windows that are loud enough.

    Args:
        samples: float32 `(sample,)`, mono, 16 kHz, in [-1, 1].
    """
    size = int(_WINDOW_S * _RATE_HZ)
    windows = samples[: len(samples) // size * size].reshape(-1, size)
    if not len(windows):
        return 0.0
    loudness = np.sqrt(np.square(windows, dtype=np.float64).mean(axis=1))
    return float((loudness > max(_SILENT, _FAINT * float(np.quantile(loudness, 0.95)))).mean())


def _grey(picture: Image, side: int) -> NDArray[np.int16]:
    small = picture.convert("L")
    small.thumbnail((side, side))
    return np.asarray(small, np.int16)


def _entropy(grey: NDArray[np.int16]) -> float:
    """Of the distribution of grey, in bits of the 8 that there can be."""
    shares = np.bincount(grey.ravel(), minlength=256) / grey.size
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum()) / 8
