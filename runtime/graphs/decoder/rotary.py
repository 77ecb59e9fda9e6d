"""Frequencies of rotary positions, and the ways in which a family stretches them beyond its training context.

All take and give radians a position for each pair of dimensions, float64 `(pair,)`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.decoder.shape import Rotary

Frequencies = NDArray[np.float64]
Floats = NDArray[np.float32]


def plain(theta: float, dims: int) -> Frequencies:
    """A geometric row from 1 down to nearly 1 / theta.

    Source: Su et al., RoFormer (2021), section 3.2.2.
    """
    powers: Frequencies = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    return powers


def llama3(
    frequencies: Frequencies, *, factor: float, low_freq_factor: float, high_freq_factor: float, trained: float
) -> Frequencies:
    """Slow frequencies divided, fast ones kept, those between blended.

    Source: `apply_scaling` of Meta's llama-models, `models/llama3/model.py`.
    """
    turns = trained * frequencies / (2 * math.pi)
    kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    blended: Frequencies = frequencies * (kept + (1 - kept) / factor)
    return blended


def yarn(
    frequencies: Frequencies, *, theta: float, factor: float, fast: float, slow: float, trained: float, whole: bool
) -> Frequencies:
    """Frequencies below `slow` turns in the training context divided, those above `fast` kept, a ramp between.

    Args:
        frequencies: Plain ones of base `theta`.
        theta: Their base.
        factor: How much longer the context gets.
        fast: Turns from which a frequency is kept.
        slow: Turns up to which it is divided.
        trained: Tokens of the training context.
        whole: The ramp begins and ends at whole pairs.

    Source: Peng et al., YaRN (2023), section 3.2, as in `transformers.modeling_rope_utils`.
    """
    dims = 2 * len(frequencies)

    def place(turns: float) -> float:
        return dims * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = place(fast), place(slow)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    divided = np.clip((np.arange(len(frequencies)) - low) / (high - low), 0, 1)
    blended: Frequencies = frequencies * (1 - divided + divided / factor)
    return blended


def tables(rotary: Rotary, positions: int) -> tuple[Floats, Floats]:
    """Cosine and sine of every position's angles, float32 `(position, pair)` each."""
    angles = np.outer(np.arange(positions, dtype=np.float64), rotary.frequencies)
    return (np.cos(angles) * rotary.gain).astype(np.float32), (np.sin(angles) * rotary.gain).astype(np.float32)
