"""Pictures of any shape as one row of patches, and where each patch stands.

Source: Wang et al., Qwen2-VL (2024), section 2.1; Bai et al., Qwen2.5-VL (2025), section 2.1.2 (windows).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import EngineError

Grid = tuple[int, int, int]
"""Time steps, rows and columns of tokens."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Patching:
    """How a tower cuts pictures.

    Attributes:
        patch: Rows and columns of pixels in a patch.
        frames: Frames in a patch.
        merge: Rows and columns of patches that become one token.
        window: Rows and columns of tokens that look at each other in most layers; 0: there are no windows.
    """

    patch: int
    frames: int
    merge: int
    window: int = 0

    @property
    def token(self) -> int:
        """Rows and columns of pixels in a token."""
        return self.patch * self.merge

    def cut(self, frames: Iterable[NDArray[np.uint8]], grid: Grid) -> NDArray[np.uint8]:
        """Patches uint8 (patch, frame · row · column · channel), those of a token beside each other, step by step.

        Args:
            frames: uint8 (row, column, channel), of the grid's size; what is missing of the last step is its last
                frame again.
            grid: Of the tokens.

        Raises:
            EngineError: Frames for more or fewer steps.
        """
        steps, rows, columns = grid
        size, merge = self.patch, self.merge
        out = np.empty((steps, rows, columns, merge, merge, self.frames, size, size, 3), np.uint8)
        step = -1
        for step, frame, pixels in self._by_step(frames, steps):
            squares = pixels.reshape(rows, merge, size, columns, merge, size, 3)
            out[step, :, :, :, :, frame:] = squares.transpose(0, 3, 1, 4, 2, 5, 6)[:, :, :, :, None]
        if step + 1 != steps:
            raise EngineError(f"frames for {step + 1} time steps came of {steps}")
        return out.reshape(steps * rows * columns * merge**2, -1)

    def _by_step(self, frames: Iterable[NDArray[np.uint8]], steps: int) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
        for place, pixels in enumerate(frames):
            if place == steps * self.frames:
                raise EngineError(f"more than the {place} frames came that fill {steps} time steps")
            yield *divmod(place, self.frames), pixels

    @property
    def still(self) -> Patching:
        """The same for pictures, whose patches are of one frame as long as they are on their way."""
        return replace(self, frames=1)

    def packed(self, patches: Sequence[NDArray[Any]], grids: Sequence[Grid]) -> dict[str, NDArray[Any]]:
        """Several pictures as the graph takes them together; see `runtime.graphs.encoders.qwen_tower.qwen_vision`.

        Args:
            patches: Of each film, or of each picture once: the encoder sees it in every frame of a patch.
            grids: Of their tokens.
        """
        order = by_size(grids)
        sorted_grids = [grids[place] for place in order]
        merged = self.merge**2
        lengths = np.concatenate([np.full(steps, rows * columns * merged) for steps, rows, columns in sorted_grids])
        inputs = {
            "patches": np.concatenate([self._in_every_frame(patches[place]) for place in order]),
            "places": np.concatenate([self._places(grid) for grid in sorted_grids]),
            "frames": runs(lengths),
        }
        return {**inputs, **self._windows(sorted_grids)} if self.window else inputs

    def _in_every_frame(self, patches: NDArray[Any]) -> NDArray[Any]:
        wide = self.frames * self.patch**2 * 3
        return patches if patches.shape[1] == wide else np.tile(patches, (1, wide // patches.shape[1]))

    def _places(self, grid: Grid) -> Integers:
        """Row and column of each patch in its frame, int64 (patch, 2)."""
        steps, rows, columns = grid
        merge = self.merge
        places = np.moveaxis(np.indices((rows * merge, columns * merge), dtype=np.int64), 0, -1)
        squares = places.reshape(rows, merge, columns, merge, 2).swapaxes(1, 2).reshape(-1, 2)
        return np.tile(squares, (steps, 1))

    def _windows(self, grids: Sequence[Grid]) -> dict[str, Integers]:
        """Patches in the order of their windows, windows of one size beside each other, and the way back."""
        numbers, first = [], 0
        for steps, rows, columns in grids:
            step, row, column = np.indices((steps, rows, columns)).reshape(3, -1)
            down, across = -(-rows // self.window), -(-columns // self.window)
            numbers.append(first + (step * down + row // self.window) * across + column // self.window)
            first += steps * down * across
        window = np.concatenate(numbers)
        sizes = np.bincount(window, minlength=first)
        tokens = np.lexsort((window, sizes[window]))
        merged = self.merge**2
        order = (tokens[:, None] * merged + np.arange(merged)).reshape(-1)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return {"windows": runs(np.sort(sizes) * merged), "window_order": order, "frame_order": back}


def by_size(grids: Sequence[Grid]) -> list[int]:
    """The order that pictures run in: those of one size beside each other."""
    return sorted(range(len(grids)), key=lambda place: (grids[place][1] * grids[place][2], place))


def runs(lengths: Integers) -> Integers:
    """Sequences of one length beside each other as runs, int64 (run, 3): where one begins and ends, and the length."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    counts = np.diff(starts, append=len(lengths))
    ends = np.cumsum(lengths[starts] * counts)
    return np.stack([ends - lengths[starts] * counts, ends, lengths[starts]], axis=1).astype(np.int64)
