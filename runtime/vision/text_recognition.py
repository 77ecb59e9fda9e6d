"""What a line of text says: PP-OCR's recogniser, and which way up the line is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from runtime.engines.onnx import OnnxSession
from runtime.vision.text_detection import network_pixels

_HEIGHT = 48
_LEAST_WIDTH = 320
_MOST_WIDTH = 3200
_ANGLE_WIDTH = 192
_BATCH = 6


class AngleClassifier:
    """Tells lines that stand on their head."""

    def __init__(self, session: OnnxSession, threshold: float = 0.9) -> None:
        self._session, self._threshold = session, threshold

    def upright(self, lines: Sequence[Image.Image]) -> list[Image.Image]:
        """The lines, those turned that are certainly upside down."""
        out = list(lines)
        for indices in _batches([line.width / line.height for line in lines]):
            (found,) = self._session.run({"x": _batch([lines[index] for index in indices], _ANGLE_WIDTH)})
            for index, turned in zip(indices, found[:, 1], strict=True):
                if turned > self._threshold:
                    out[index] = lines[index].transpose(Image.Transpose.ROTATE_180)
        return out


class TextRecogniser:
    """Reads single lines."""

    def __init__(self, session: OnnxSession, characters: Sequence[str]) -> None:
        self._session, self._characters = session, characters

    def read(self, lines: Sequence[Image.Image]) -> list[tuple[str, float]]:
        """Text and confidence (0 to 1) of each line.

        Args:
            lines: RGB, of any height, each with one line of text from left to right.
        """
        out: list[tuple[str, float]] = [("", 0.0)] * len(lines)
        ratios = [line.width / line.height for line in lines]
        for indices in _batches(ratios):
            widest = max(_HEIGHT * ratios[index] for index in indices)
            width = int(min(max(_LEAST_WIDTH, np.ceil(widest)), _MOST_WIDTH))
            (found,) = self._session.run({"x": _batch([lines[index] for index in indices], width)})
            for index, probabilities in zip(indices, found, strict=True):
                out[index] = collapse(probabilities, self._characters)
        return out


def collapse(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[str, float]:
    """Classes by time step to text and mean confidence.

    Args:
        probabilities: float32 (step, class); class 0 is the blank.
        characters: By class, from class 1 on.

    Source:
        Graves et al. 2006 (CTC), best path: repeats are one, then blanks are none.
    """
    best = probabilities.argmax(axis=1)
    kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    text = "".join(characters[index - 1] for index in best[kept])
    return text, float(probabilities.max(axis=1)[kept].mean()) if text else 0.0


def _batches(ratios: Sequence[float]) -> Iterator[list[int]]:
    """Indices in groups of similar width, so that little of a batch is padding."""
    order = sorted(range(len(ratios)), key=lambda index: ratios[index])
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]


def _batch(lines: Sequence[Image.Image], width: int) -> NDArray[np.float32]:
    """float32 (line, channel, 48, width); what a line does not fill is zero."""
    out = np.zeros((len(lines), 3, _HEIGHT, width), np.float32)
    for index, line in enumerate(lines):
        wide = max(1, min(width, int(np.ceil(_HEIGHT * line.width / line.height))))
        out[index, :, :, :wide] = network_pixels(line.resize((wide, _HEIGHT), Image.Resampling.BILINEAR))
    return out
