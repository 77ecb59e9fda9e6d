"""Idefics2: a picture in its own shape, or its four quarters and the whole of it, as the same few tokens each.

Source: Laurençon et al., What matters when building vision-language models? (2024), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import ModelUnsupportedError
from runtime.multimodal.family import Detail, Film, Laid, split
from runtime.multimodal.patching import runs
from runtime.multimodal.prepared import Floats, Prepared, in_a_row
from runtime.multimodal.shares import shares

if TYPE_CHECKING:
    from PIL.Image import Image


class Idefics2:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.idefics2` gives them.
    """

    closer_alone = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self.placeholders: Mapping[Modality, str] = {Modality.IMAGE: str(parameters["image_token"])}
        self._patch, self._trained = int(parameters["patch"]), int(parameters["trained"])
        self._latents, self._splitting = int(parameters["latents"]), bool(parameters["splitting"])
        self._shortest, self._longest = int(parameters["shortest_edge"]), int(parameters["longest_edge"])
        self._resample, self._around = int(parameters["resample"]), str(parameters["around"])

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """That of the picture, or of its quarters, which are as large as the whole."""
        if not self._is_split((width, height), detail):
            return self._size(width, height)
        across, down = self._size(width - width // 2, height - height // 2)
        return 2 * across, 2 * down

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """Patches of the picture, behind those of its quarters where it is looked at closely."""
        quarters = _quarters(*picture.size) if self._is_split(picture.size, detail) else []
        boxes = [*quarters, (0, 0, *picture.size)]
        cut = [self._cut(picture, box) for box in boxes]
        width, height = picture.size
        seen = [(left / width, top / height, right / width, bottom / height) for left, top, right, bottom in boxes]
        tokens = self._latents * len(boxes)
        return Prepared(
            modality=Modality.IMAGE,
            inputs={
                "patches": np.concatenate([patches for patches, _ in cut]),
                "places": np.concatenate([places for _, places in cut]),
                "lengths": np.array([len(places) for _, places in cut], np.int64),
            },
            frame=self._frame(len(boxes)),
            positions=in_a_row(tokens),
            grid=(1, 1, tokens),
            regions=np.repeat(np.array(seen, np.float32), self._latents, axis=0),
        )

    def video(self, film: Film, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no video; send pictures of it")

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no video; send pictures of it")

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no audio; send pictures or text")

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Patches of all pictures in a row, those of as many beside each other, and the order that they come out in."""
        lengths = np.concatenate([one["lengths"] for one in inputs])
        ends = np.cumsum(lengths)[:-1]
        order = np.argsort(lengths, kind="stable")
        rows = {name: np.split(np.concatenate([one[name] for one in inputs]), ends) for name in ("patches", "places")}
        sorted_rows = {name: np.concatenate([found[place] for place in order]) for name, found in rows.items()}
        starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
        tiles = np.stack([starts, np.append(starts[1:], len(lengths))], axis=1).astype(np.int64)
        return {
            **sorted_rows,
            "runs": runs(lengths[order]),
            "tiles": tiles,
            "order": np.argsort(order).astype(np.int64),
        }

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each piece."""
        return split(outputs[0], pieces)

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """Sound is not taken."""
        return None

    def _is_split(self, size: tuple[int, int], detail: Detail) -> bool:
        # A picture of one row or column has quarters without any pixel.
        if min(size) < 2:
            return False
        room = detail.max_tokens is None or detail.max_tokens >= 5 * self._latents
        return self._splitting and detail.level != "low" and room

    def _cut(self, picture: Image, box: tuple[int, int, int, int]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Patches uint8 `(patch, row · column · channel)` of a part of a picture, and where they stand."""
        part = picture.crop(box)
        small = part.resize(self._size(*part.size), self._resample)
        patch, rows, columns = self._patch, small.height // self._patch, small.width // self._patch
        pixels = np.asarray(small)[: rows * patch, : columns * patch]
        patches = pixels.reshape(rows, patch, columns, patch, 3).swapaxes(1, 2).reshape(rows * columns, -1)
        places = shares(rows, self._trained)[:, None] * self._trained + shares(columns, self._trained)
        return patches, places.reshape(-1)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that a part of a picture gets, between the shortest and the longest edge."""
        share = width / height
        if width >= height and width > self._longest:
            width, height = self._longest, int(self._longest / share)
        elif height > width and height > self._longest:
            width, height = int(self._longest * share), self._longest
        return max(width, self._shortest), max(height, self._shortest)

    def _frame(self, parts: int) -> tuple[FramePiece, ...]:
        slots, mark = FramePiece(slots=self._latents), FramePiece(text=self._around)
        first = FramePiece(text=self._around, once=True)
        return (first, slots, *(mark, slots) * (parts - 1), FramePiece(text=self._around, apart=True))


def _quarters(width: int, height: int) -> list[tuple[int, int, int, int]]:
    """Left, top, right, bottom of each quarter, row by row."""
    across, down = width // 2, height // 2
    return [
        (left, top, right, bottom)
        for top, bottom in ((0, down), (down, height))
        for left, right in ((0, across), (across, width))
    ]
