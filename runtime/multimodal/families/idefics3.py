"""Idefics3 and SmolVLM: a picture is square tiles with the whole of it behind them, a film is its frames with times.

Source: Laurençon et al., Building and better understanding vision-language models (2024), section 3; Marafioti et al.,
SmolVLM (2025), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.multimodal.family import Detail, Film, Laid, concatenated, split
from runtime.multimodal.films import evenly_spread, with_scenes
from runtime.multimodal.number_words import in_words
from runtime.multimodal.prepared import Floats, Prepared, in_a_row
from runtime.multimodal.regions import grid_regions

if TYPE_CHECKING:
    from PIL.Image import Image

_LARGEST = 4096
_INTRO = "You are provided the following series of {frames} frames from a {length} [H:MM:SS] video.\n"


class Idefics3:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.idefics3` gives them.
    """

    closer_alone = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self.placeholders: Mapping[Modality, str] = {Modality.IMAGE: str(parameters["image_token"])}
        self._tile, self._side = int(parameters["tile"]), int(parameters["side"])
        self._longest, self._splitting = int(parameters["longest_edge"]), bool(parameters["splitting"])
        self._seen = float(parameters["seen"])
        self._resample = int(parameters["resample"])
        self._around, self._whole = str(parameters["around"]), str(parameters["whole"])
        self._video: Mapping[str, Any] | None = parameters.get("video")
        if self._video is not None:
            self.placeholders = {**self.placeholders, Modality.VIDEO: str(self._video["token"])}

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """The longest edge as given, or that of whole tiles."""
        longest = self._edge(detail)
        if longest is None:
            return _longest((width, height), self._longest)
        first = _longest((width, height), longest)
        across, down = _multiples(first, self._tile)
        return max(first[0], across), max(first[1], down)

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """Tiles of the picture, row by row, and all of it behind them; alone where there is but one tile."""
        longest = self._edge(detail)
        if longest is None:
            whole = self._resized(self._resized(picture, *_longest(picture.size, self._longest)), *[self._tile] * 2)
            return self._prepared([whole], 0, 0)
        width, height = _multiples(_longest(picture.size, longest), self._tile)
        scaled = self._resized(self._resized(picture, *_longest(picture.size, longest)), width, height)
        rows, columns = height // self._tile, width // self._tile
        if rows == columns == 1:
            return self._prepared([scaled], 0, 0)
        pixels = np.asarray(scaled)
        cut = pixels.reshape(rows, self._tile, columns, self._tile, 3).swapaxes(1, 2)
        whole = self._resized(scaled, self._tile, self._tile)
        return self._prepared([*cut.reshape(-1, self._tile, self._tile, 3), np.asarray(whole)], rows, columns)

    def video(self, film: Film, detail: Detail) -> Prepared:
        """Each frame as one tile, behind the moment that it was taken at.

        Raises:
            MediaUnreadableError: There are none.
        """
        frames = [
            self._resized(self._resized(frame, *_longest(frame.size, self._films["longest_edge"])), *[self._tile] * 2)
            for frame in film.frames
        ]
        if not frames:
            raise MediaUnreadableError("the video has no frames to look at; send one with pictures")
        tokens = self._side**2
        length = int(film.seconds)
        clock = f"{length // 3600}:{length % 3600 // 60:02d}:{length % 60:02d}"
        text = _INTRO.format(frames=in_words(len(frames)), length=clock)
        frame: list[FramePiece] = []
        for time_s in film.times_s:
            text += f"\nFrame from {int(time_s) // 60:02d}:{int(time_s) % 60:02d}:{self._around}{self._whole}"
            frame += [FramePiece(text=text), FramePiece(slots=tokens)]
            text = self._around
        step = (film.times_s[-1] - film.times_s[0]) / (len(frames) - 1) if len(frames) > 1 else None
        return Prepared(
            modality=Modality.VIDEO,
            inputs={"pixels": np.stack([np.asarray(one) for one in frames])},
            frame=(*frame, FramePiece(text=f"{text}\n\n")),
            positions=in_a_row(tokens * len(frames)),
            grid=(len(frames), self._side, self._side),
            regions=np.tile(self._all(), (len(frames), 1)),
            seconds_per_step=step,
            start_s=film.times_s[0],
        )

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """So many a second as the model was trained on, evenly spread; a long film's first and last second are left."""
        most, rate = int(self._films["frames"]), float(self._films["frames_per_second"])
        if detail.max_tokens is not None:
            most = max(1, min(most, detail.max_tokens // self._side**2))
        moments = evenly_spread(seconds, frames_per_second, most=most, rate=rate, skip_s=1.0)
        return with_scenes(moments, cuts, seconds=seconds, most=most, each=1)

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no audio; send pictures or text")

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """All tiles in a row."""
        return concatenated(inputs)

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each piece's tiles."""
        return split(outputs[0], pieces)

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """Sound is not taken."""
        return None

    @property
    def _films(self) -> Mapping[str, Any]:
        if self._video is None:
            raise ModelUnsupportedError("the model takes no video; send pictures of it")
        return self._video

    def _edge(self, detail: Detail) -> int | None:
        """The longest edge to cut into tiles; None: no tiles."""
        if not self._splitting or detail.level == "low":
            return None
        if detail.max_tokens is None:
            return self._longest
        # A square picture has the most tiles of all with that edge.
        tiles = detail.max_tokens // self._side**2 - 1
        return min(self._longest, math.isqrt(tiles) * self._tile) if tiles > 1 else None

    def _resized(self, picture: Image, width: int, height: int) -> Image:
        return picture.resize((width, height), self._resample)

    def _prepared(self, tiles: Sequence[Image | NDArray[Any]], rows: int, columns: int) -> Prepared:
        side, tokens = self._side, self._side**2
        boxes = [
            (column / columns, row / rows, (column + self._seen) / columns, (row + self._seen) / rows)
            for row in range(rows)
            for column in range(columns)
        ]
        regions = [*(grid_regions(side, side, box) for box in boxes), self._all()]
        return Prepared(
            modality=Modality.IMAGE,
            inputs={"pixels": np.stack([np.asarray(tile) for tile in tiles])},
            frame=self._frame(rows, columns),
            positions=in_a_row(len(tiles) * tokens),
            grid=(1, max(rows, 1) * side, max(columns, 1) * side),
            regions=np.concatenate(regions),
        )

    def _all(self) -> Floats:
        """Regions of a tile that shows a whole picture."""
        return grid_regions(self._side, self._side, (0.0, 0.0, self._seen, self._seen))

    def _frame(self, rows: int, columns: int) -> tuple[FramePiece, ...]:
        slots = FramePiece(slots=self._side**2)
        frame: list[FramePiece] = []
        text = ""
        for row in range(rows):
            for column in range(columns):
                frame += [FramePiece(text=f"{text}{self._around}<row_{row + 1}_col_{column + 1}>"), slots]
                text = ""
            text = "\n"
        last = FramePiece(text=f"{text}{text}{self._around}{self._whole}")
        return (*frame, last, slots, FramePiece(text=self._around))


def _longest(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Width and height with the longer one as given, and the other one even."""
    width, height = size
    share = width / height
    if width >= height:
        width, height = longest, int(longest / share)
        height += height % 2
    else:
        width, height = int(longest * share), longest
        width += width % 2
    return _at_most(max(width, 1), max(height, 1))


def _at_most(width: int, height: int) -> tuple[int, int]:
    share = width / height
    if width >= height and width > _LARGEST:
        width, height = _LARGEST, int(_LARGEST / share)
    elif height > width and height > _LARGEST:
        width, height = int(_LARGEST * share), _LARGEST
    return max(width, 1), max(height, 1)


def _multiples(size: tuple[int, int], tile: int) -> tuple[int, int]:
    """Width and height in whole tiles: the longer one first, the other one by the picture's share of it."""
    width, height = size
    share = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        return width, math.ceil(int(width / share) / tile) * tile
    height = math.ceil(height / tile) * tile
    return math.ceil(int(height * share) / tile) * tile, height
