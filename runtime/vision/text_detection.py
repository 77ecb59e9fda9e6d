"""Where on a picture there is text: PP-OCR's detector and what is done with its map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from runtime.engines.onnx import OnnxSession
from runtime.vision.regions import Points, Rectangle, regions, smallest_rectangle

_MULTIPLE = 32


@dataclass(frozen=True, kw_only=True)
class DetectionConfig:
    """The detector's settings; the defaults are those that PP-OCRv4 was published with.

    Attributes:
        shortest_side: A smaller picture is enlarged to this, in pixels.
        longest_side: A larger picture is shrunk to this, in pixels.
        threshold: Probability from which a pixel is text.
        box_threshold: Mean probability from which a region is kept.
        growth: Regions are drawn smaller than the text; they grow by area × this / perimeter.
        least_side: Regions thinner than this are dropped, in pixels of the map.
        most: The most regions of a picture.
    """

    shortest_side: int = 736
    longest_side: int = 1920
    threshold: float = 0.3
    box_threshold: float = 0.5
    growth: float = 1.6
    least_side: float = 3.0
    most: int = 1000


class TextDetector:
    """Finds lines of text."""

    def __init__(self, session: OnnxSession, config: DetectionConfig | None = None) -> None:
        self._session = session
        self._config = config or DetectionConfig()

    def __call__(self, image: Image.Image) -> list[Points]:
        """Corners of the lines of text, float64 (4, 2) each, in pixels of the picture.

        Args:
            image: RGB.
        """
        width, height = self._size(image)
        small = image.resize((width, height), Image.Resampling.BILINEAR)
        (found,) = self._session.run({"x": network_pixels(small)[None]})
        scale = np.array([image.width / width, image.height / height])
        limit = np.array([image.width, image.height], dtype=np.float64)
        return [np.clip(corners * scale, 0, limit) for corners in text_boxes(found[0, 0], self._config)]

    def _size(self, image: Image.Image) -> tuple[int, int]:
        config = self._config
        scale = max(1.0, config.shortest_side / min(image.size))
        scale = min(scale, config.longest_side / max(image.size))
        width, height = (max(_MULTIPLE, round(side * scale / _MULTIPLE) * _MULTIPLE) for side in image.size)
        return width, height


def network_pixels(image: Image.Image) -> NDArray[np.float32]:
    """A picture as PP-OCR's networks take it: float32 (channel, height, width), blue first, in [-1, 1]."""
    pixels = np.asarray(image, dtype=np.float32)[..., ::-1]
    return np.ascontiguousarray(((pixels / 255.0 - 0.5) / 0.5).transpose(2, 0, 1))


def text_boxes(probabilities: NDArray[np.float32], config: DetectionConfig) -> list[Points]:
    """Regions of likely text as grown rectangles.

    Args:
        probabilities: float32 (height, width) in [0, 1].
        config: The rules.

    Source:
        Liao et al. 2020, "Real-time Scene Text Detection with Differentiable Binarization", section 3.4.
    """
    mask = probabilities > config.threshold
    # Grown by a pixel to the right and down, so that thin strokes hold together.
    mask[1:] |= mask[:-1]
    mask[:, 1:] |= mask[:, :-1]
    boxes = []
    for points in regions(mask):
        rectangle = smallest_rectangle(points)
        if min(rectangle.width, rectangle.height) < config.least_side:
            continue
        if _mean_inside(probabilities, rectangle) < config.box_threshold:
            continue
        area, perimeter = rectangle.width * rectangle.height, 2 * (rectangle.width + rectangle.height)
        boxes.append(rectangle.grown(area * config.growth / perimeter).corners())
        if len(boxes) == config.most:
            break
    return boxes


def _mean_inside(probabilities: NDArray[np.float32], rectangle: Rectangle) -> float:
    corners = rectangle.corners()
    low = np.maximum(np.floor(corners.min(0)).astype(int), 0)
    high = np.ceil(corners.max(0)).astype(int) + 1
    cut = probabilities[low[1] : high[1], low[0] : high[0]]
    inside = Image.new("1", (cut.shape[1], cut.shape[0]))
    ImageDraw.Draw(inside).polygon([tuple(point) for point in (corners - low)], fill=1, outline=1)
    chosen = cut[np.asarray(inside)]
    return float(chosen.mean()) if chosen.size else 0.0
