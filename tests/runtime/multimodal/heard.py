"""Sounds with something at every pitch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.made.sounds import tone

RATE = 16_000


def sound(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """Tones that rise and fall, over noise."""
    random = np.random.default_rng(seed)
    whole = tone(300 + 200 * seed, samples / RATE + 1, RATE)[:samples] * np.linspace(1, 0.1, samples)
    return (whole + random.normal(0, 0.02, samples)).astype(np.float32)
