"""A page read: lines found, turned, recognised and put in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from PIL import Image

from runtime.engines.onnx import OnnxSession
from runtime.vision.regions import Points
from runtime.vision.text_detection import TextDetector
from runtime.vision.text_recognition import AngleClassifier, TextRecogniser

if TYPE_CHECKING:
    from runtime.repository import Repository

_LEAST_CONFIDENCE = 0.5
_TALL = 1.5


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text.

    Attributes:
        text: What it says.
        confidence: 0 to 1.
        box: float64 (4, 2): top left, top right, bottom right, bottom left, in pixels.
    """

    text: str
    confidence: float
    box: Points


class TextReader:
    """Reads pictures of text; stateless, safe from several threads."""

    def __init__(self, detector: TextDetector, angles: AngleClassifier, recogniser: TextRecogniser) -> None:
        self._detector, self._angles, self._recogniser = detector, angles, recogniser

    @classmethod
    def load(cls, repository: Repository, name: str = "ppocr-v4", *, threads: int = 0) -> Self:
        """The installed model.

        Args:
            repository: Where it is.
            name: Its id or alias.
            threads: Threads of one run; 0: every core.

        Raises:
            ModelNotFoundError: It is not installed.
            ModelCorruptError: Its files are damaged.
        """
        manifest = repository.resolve(name)
        detection, angle, recognition = (
            OnnxSession(repository.file(manifest, f"{part}.onnx"), threads=threads, spin=False, shrink=True)
            for part in ("detection", "angle", "recognition")
        )
        characters = json.loads(repository.file(manifest, "characters.json").read_text(encoding="utf-8"))
        return cls(TextDetector(detection), AngleClassifier(angle), TextRecogniser(recognition, characters))

    def read(self, image: Image.Image) -> list[list[Line]]:
        """The lines of a picture in reading order; those on one height are one row.

        Args:
            image: RGB.
        """
        boxes = self._detector(image)
        strips = self._angles.upright([cut_out(image, box) for box in boxes])
        read = zip(self._recogniser.read(strips), boxes, strict=True)
        lines = [Line(text.strip(), confidence, box) for (text, confidence), box in read]
        return rows([line for line in lines if line.text and line.confidence >= _LEAST_CONFIDENCE])


def cut_out(image: Image.Image, box: Points) -> Image.Image:
    """What is inside a box, made straight; a tall box is text that runs from bottom to top."""
    top_left, top_right, bottom_right, bottom_left = box
    width = max(1, round(float(max(np.linalg.norm(top_right - top_left), np.linalg.norm(bottom_right - bottom_left)))))
    height = max(1, round(float(max(np.linalg.norm(bottom_left - top_left), np.linalg.norm(bottom_right - top_right)))))
    corners = [float(value) for point in (top_left, bottom_left, bottom_right, top_right) for value in point]
    strip = image.transform((width, height), Image.Transform.QUAD, corners, Image.Resampling.BICUBIC)
    return strip.transpose(Image.Transpose.ROTATE_90) if height >= _TALL * width else strip


def rows(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines from top to bottom, grouped into rows, each from left to right."""
    found: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: float(line.box[:, 1].mean())):
        middle, height = float(line.box[:, 1].mean()), float(np.ptp(line.box[:, 1]))
        if found:
            last = found[-1][-1]
            # Half of the smaller line's height apart is another row.
            if abs(middle - float(last.box[:, 1].mean())) < min(height, float(np.ptp(last.box[:, 1]))) / 2:
                found[-1].append(line)
                continue
        found.append([line])
    return [sorted(row, key=lambda line: float(line.box[:, 0].min())) for row in found]
