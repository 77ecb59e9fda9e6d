"""The square that the image encoder looks at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 224
"""Height and width of the encoder's input, in pixels."""

CENTRE = 224 / 256
"""Share of the shorter side that the encoder looks at."""

SHORTEST_SIDE = 512
"""A decoder may shrink a picture to this without losing what the encoder sees."""


def encoder_pixels(image: Image.Image) -> NDArray[np.float32]:
    """The centre of an RGB picture as EfficientNet-Lite0 was trained on it.

    Args:
        image: RGB, any size.

    Returns:
        float32 (channel=3, height=224, width=224), `(x − 127) / 128`, so about [-1, 1].

    Source:
        EfficientNet-Lite's evaluation preprocessing: crop the centre 0.875, bicubic, mean 127, stddev 128.
    """
    width, height = image.size
    side = max(1, int(min(width, height) * CENTRE))
    left, top = (width - side) // 2, (height - side) // 2
    square = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    pixels = (np.asarray(square, dtype=np.float32) - 127.0) / 128.0
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
