"""LLaVA-OneVision: a picture alone is squares of its best grid, several are a square each, a film is pooled frames.

Source: Li et al., LLaVA-OneVision (2024), section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.multimodal.family import Detail, Film, Laid
from runtime.multimodal.films import evenly_spread, with_scenes
from runtime.multimodal.interpolation import bilinear
from runtime.multimodal.prepared import Floats, Prepared, in_a_row
from runtime.multimodal.regions import grid_regions
from runtime.multimodal.tile_grid import Tile, TileGrid, best_size

if TYPE_CHECKING:
    from PIL.Image import Image


class LlavaOnevision:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.llava_onevision` gives them.
    """

    closer_alone = True

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self.placeholders: Mapping[Modality, str] = {
            Modality.IMAGE: str(parameters["image_token"]),
            Modality.VIDEO: str(parameters["video_token"]),
        }
        tile, side, patch = (int(parameters[name]) for name in ("tile", "side", "patch"))
        self._shape = Tile(pixels=tile, side=side, patch=patch)
        self._seen = side * patch / tile
        self._most_tiles, self._resample = int(parameters["most_tiles"]), int(parameters["resample"])
        self._grids = [(int(height), int(width)) for height, width in parameters["grids"]]
        red, green, blue = (int(value) for value in parameters["background"])
        self._background = (red, green, blue)
        self._frames, self._rate = int(parameters["frames"]), float(parameters["frames_per_second"])

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """That of the picture in its grid, or in a square."""
        grid = self._grid((height, width), detail)
        if grid is not None:
            return max(grid.scaled[1], self._shape.pixels), max(grid.scaled[0], self._shape.pixels)
        share = self._shape.pixels / max(width, height)
        return max(1, math.ceil(width * share)), max(1, math.ceil(height * share))

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """The whole picture and its tiles; one of several pictures, or with low detail, as a square with borders."""
        grid = self._grid((picture.height, picture.width), detail)
        if grid is None:
            return self._square(picture)
        whole = np.asarray(self._resized(picture))
        scaled = np.asarray(picture.resize(grid.scaled[::-1], self._resample))
        canvas = np.zeros((*grid.size, 3), np.uint8)
        top, left = grid.border
        canvas[top : top + scaled.shape[0], left : left + scaled.shape[1]] = scaled
        rows, columns = grid.tiles
        tile, side = self._shape.pixels, self._shape.side
        tiles = canvas.reshape(rows, tile, columns, tile, 3).swapaxes(1, 2).reshape(-1, tile, tile, 3)
        tokens = side**2 + grid.tokens
        return Prepared(
            modality=Modality.IMAGE,
            inputs={
                "pixels": np.concatenate([whole[None], tiles]),
                "grid": np.array(grid.size, np.int64),
                "size": np.array(grid.picture, np.int64),
            },
            frame=(FramePiece(slots=tokens),),
            positions=in_a_row(tokens),
            grid=(1, *grid.kept),
            regions=np.concatenate([self._all(side), grid.regions()]),
        )

    def video(self, film: Film, detail: Detail) -> Prepared:
        """Each frame as a square whose tokens are pooled, and a newline behind all.

        Raises:
            MediaUnreadableError: There are none.
        """
        frames = [np.asarray(self._resized(frame)) for frame in film.frames]
        if not frames:
            raise MediaUnreadableError("the video has no frames to look at; send one with pictures")
        side = math.ceil(self._shape.side / 2)
        tokens = len(frames) * side**2 + 1
        shown = np.tile(self._all(side), (len(frames), 1))
        step = (film.times_s[-1] - film.times_s[0]) / (len(frames) - 1) if len(frames) > 1 else None
        return Prepared(
            modality=Modality.VIDEO,
            inputs={"pixels": np.stack(frames)},
            frame=(FramePiece(slots=tokens),),
            positions=in_a_row(tokens),
            grid=(len(frames), side, side),
            regions=np.concatenate([shown, grid_regions(1, 1)]),
            seconds_per_step=step,
            start_s=film.times_s[0],
        )

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """So many a second, and at most so many, as the folder says, evenly spread."""
        most = self._frames
        if detail.max_tokens is not None:
            most = max(1, min(most, (detail.max_tokens - 1) // math.ceil(self._shape.side / 2) ** 2))
        moments = evenly_spread(seconds, frames_per_second, most=most, rate=self._rate)
        return with_scenes(moments, cuts, seconds=seconds, most=most, each=1)

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no audio; send pictures, films or text")

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """All squares in a row."""
        return {"pixels": np.concatenate([one["pixels"] for one in inputs])}

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each piece: without borders, pooled where there are many, with a newline behind each row."""
        squares, newline = outputs
        found, start = [], 0
        for piece in pieces:
            count = len(piece.inputs["pixels"])
            found.append(self._tokens(modality, squares[start : start + count], newline, piece))
            start += count
        return found

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """Sound is not taken."""
        return None

    def _tokens(self, modality: Modality, squares: Floats, newline: Floats, piece: Prepared) -> Floats:
        if modality is Modality.VIDEO:
            side, half = self._shape.side, math.ceil(self._shape.side / 2)
            pooled = bilinear(squares.reshape(-1, side, side, squares.shape[-1]), half, half)
            return np.concatenate([pooled.reshape(-1, squares.shape[-1]), newline[None]])
        if "grid" not in piece.inputs:
            return np.concatenate([squares[0], newline[None]])
        size, picture = ((int(piece.inputs[name][0]), int(piece.inputs[name][1])) for name in ("grid", "size"))
        return np.concatenate([squares[0], self._laid(picture, size).tokens_of(squares[1:], newline)])

    def _grid(self, picture: tuple[int, int], detail: Detail) -> TileGrid | None:
        """The grid of a picture; None: it is one square."""
        if detail.level == "low" or not detail.alone:
            return None
        if detail.max_tokens is None:
            return self._laid(picture, best_size(picture, self._grids))
        room = detail.max_tokens - self._shape.side**2
        fitting = [size for size in self._grids if self._laid(picture, size).tokens <= room]
        return self._laid(picture, best_size(picture, fitting)) if fitting else None

    def _laid(self, picture: tuple[int, int], size: tuple[int, int]) -> TileGrid:
        return TileGrid(picture=picture, size=size, tile=self._shape, most_tiles=self._most_tiles)

    def _square(self, picture: Image) -> Prepared:
        """The picture in the middle of a square of the mean colour, with a newline behind its tokens."""
        import PIL.Image

        width, height = picture.size
        edge, side = max(width, height), self._shape.side
        left, top = (edge - width) // 2, (edge - height) // 2
        if width != height:
            canvas = PIL.Image.new("RGB", (edge, edge), self._background)
            canvas.paste(picture, (left, top))
            picture = canvas
        tokens = side**2 + 1
        box = (-left / width, -top / height, (edge * self._seen - left) / width, (edge * self._seen - top) / height)
        return Prepared(
            modality=Modality.IMAGE,
            inputs={"pixels": np.asarray(self._resized(picture))[None]},
            frame=(FramePiece(slots=tokens),),
            positions=in_a_row(tokens),
            grid=(1, side, side),
            regions=np.concatenate([grid_regions(side, side, box), grid_regions(1, 1)]),
        )

    def _resized(self, picture: Image) -> Image:
        return picture.resize((self._shape.pixels, self._shape.pixels), self._resample)

    def _all(self, side: int) -> Floats:
        """Regions of a square that shows a whole picture."""
        return grid_regions(side, side, (0.0, 0.0, self._seen, self._seen))
