"""Pictures and films with detail at every scale, of any shape."""

from __future__ import annotations

import numpy as np
from PIL import Image

from runtime.multimodal.family import Film


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours, hard edges and noise."""
    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin((seed + 3) * across * scale + down * scale * 2) for scale in (3, 7, 29)]
    pixels = 127 + 90 * np.stack(waves, axis=-1)
    pixels[height // 4 : height // 2, width // 3 :] = random.integers(0, 256, 3)
    pixels += random.normal(0, 12, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def film(count: int, seconds: float, width: int = 90, height: int = 60) -> Film:
    """Frames at even distances, the first at the start."""
    frames = [scene(width, height, seed) for seed in range(count)]
    return Film(frames, [index * seconds / count for index in range(count)], seconds)


SHAPES = {"wide": (600, 20), "tall": (17, 500), "one pixel": (1, 1), "square": (224, 224), "odd": (301, 199)}
"""Widths and heights that are hard on preprocessing."""
