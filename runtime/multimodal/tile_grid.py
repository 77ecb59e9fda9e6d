"""A picture laid into a grid of square tiles, and which of their tokens show it.

Source: Liu et al., LLaVA-NeXT (2024); Li et al., LLaVA-OneVision (2024), section 3.2: tokens of borders are left out, a
token stands behind each row, and where there are many they are made fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.multimodal.interpolation import bilinear
from runtime.multimodal.prepared import Floats

_WORTHWHILE = 1.1
"""Below this ratio of sides, tokens are not made fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A square as the encoder takes it.

    Attributes:
        pixels: On a side.
        side: Tokens on a side.
        patch: Pixels on the side of a token; what is left of them at the right and at the bottom is not looked at.
    """

    pixels: int
    side: int
    patch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """Where a picture stands in a grid.

    Attributes:
        picture: Height and width of the picture in pixels.
        size: Height and width of the grid in pixels.
        tile: Its squares.
        most_tiles: Tiles whose tokens are kept as they are; those of more are made so few.
    """

    picture: tuple[int, int]
    size: tuple[int, int]
    tile: Tile
    most_tiles: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return self.size[0] // self.tile.pixels, self.size[1] // self.tile.pixels

    @property
    def scaled(self) -> tuple[int, int]:
        """Height and width that the picture gets."""
        (height, width), (most_high, most_wide) = self.picture, self.size
        across, down = most_wide / width, most_high / height
        if across < down:
            return min(math.ceil(height * across), most_high), most_wide
        return most_high, min(math.ceil(width * down), most_wide)

    @property
    def border(self) -> tuple[int, int]:
        """Pixels above the picture and to its left."""
        height, width = self.scaled
        return (self.size[0] - height) // 2, (self.size[1] - width) // 2

    @property
    def cropped(self) -> tuple[int, int, int, int]:
        """The tokens that show the picture: first and last row, first and last column, the last ones not included."""
        rows, columns = (count * self.tile.side for count in self.tiles)
        height, width = self.picture
        if width / height > columns / rows:
            border = (rows - int(round(height * (columns / width), 7))) // 2
            return border, rows - border, 0, columns
        border = (columns - int(round(width * (rows / height), 7))) // 2
        return 0, rows, border, columns - border

    @property
    def kept(self) -> tuple[int, int]:
        """Rows and columns of tokens of the picture."""
        top, bottom, left, right = self.cropped
        rows, columns = bottom - top, right - left
        ratio = math.sqrt(rows * columns / (self.most_tiles * self.tile.side**2))
        return (int(rows // ratio), int(columns // ratio)) if ratio > _WORTHWHILE else (rows, columns)

    @property
    def tokens(self) -> int:
        """Tokens of the picture, with the one behind each row."""
        rows, columns = self.kept
        return rows * (columns + 1)

    def tokens_of(self, squares: Floats, newline: Floats) -> Floats:
        """The picture's tokens, row by row.

        Args:
            squares: float32 `(tile, token, dim)`, row by row.
            newline: float32 `(dim,)`, what stands behind each row.

        Returns:
            float32 `(token, dim)`.
        """
        (down, across), side, dim = self.tiles, self.tile.side, squares.shape[-1]
        whole = squares.reshape(down, across, side, side, dim).swapaxes(1, 2).reshape(down * side, across * side, dim)
        top, bottom, left, right = self.cropped
        shown = whole[top:bottom, left:right]
        rows, columns = self.kept
        if (rows, columns) != shown.shape[:2]:
            shown = bilinear(shown, rows, columns)
        lines = np.broadcast_to(newline, (rows, 1, dim))
        return np.concatenate([shown, lines], axis=1).reshape(-1, dim)

    def regions(self) -> Floats:
        """What each token sees, float32 `(token, 4)`: shares of the picture; a newline sees its row."""
        top, bottom, left, right = self.cropped
        rows, columns = self.kept
        downs = self._edges(0, top, bottom, rows)
        acrosses = self._edges(1, left, right, columns)
        found = np.empty((rows, columns + 1, 4))
        found[:, :, 1], found[:, :, 3] = downs[0][:, None], downs[1][:, None]
        found[:, :-1, 0], found[:, :-1, 2] = acrosses
        found[:, -1, 0], found[:, -1, 2] = 0, 1
        return found.reshape(-1, 4).clip(0, 1).astype(np.float32)

    def _edges(self, axis: int, first: int, last: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Begin and end of so many tokens that share some of the grid's along an axis, as shares of the picture."""
        places = np.arange(first, last)
        pixels = places // self.tile.side * self.tile.pixels + places % self.tile.side * self.tile.patch
        begins = (pixels - self.border[axis]) / self.scaled[axis]
        ends = begins + self.tile.patch / self.scaled[axis]
        if count == len(places):
            return begins, ends
        edges = np.interp(np.linspace(0, len(places), count + 1), np.arange(len(places) + 1), [*begins, ends[-1]])
        return edges[:-1], edges[1:]


def best_size(picture: tuple[int, int], sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The size that shows most of a picture, and of those that show as much the one that wastes least.

    Args:
        picture: Height and width.
        sizes: Heights and widths to choose from.
    """
    height, width = picture

    def shown(size: tuple[int, int]) -> tuple[int, int]:
        scale = min(size[1] / width, size[0] / height)
        pixels = min(int(width * scale) * int(height * scale), width * height)
        return pixels, pixels - size[0] * size[1]

    return max(sizes, key=shown)
