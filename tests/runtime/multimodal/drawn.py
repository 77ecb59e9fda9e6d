"""Pictures with detail at every scale, of any shape."""

from __future__ import annotations

import numpy as np
from PIL import Image


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours, hard edges and noise."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin((seed + 3) * across * scale + down * scale * 2) for scale in (3, 7, 29)]
    pixels = 127 + 90 * np.stack(waves, axis=-1)
    pixels[height // 4 : height // 2, width // 3 :] = random.integers(0, 256, 3)
    pixels += random.normal(0, 12, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


SHAPES = {"wide": (600, 20), "tall": (17, 500), "one pixel": (1, 1), "square": (224, 224), "odd": (301, 199)}
"""Widths and heights that are hard on preprocessing."""
