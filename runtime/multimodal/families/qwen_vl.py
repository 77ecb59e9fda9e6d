"""Qwen2-VL and Qwen2.5-VL: pictures and films in tokens of 28 × 28 pixels, with positions of three axes.

Source: Wang et al., Qwen2-VL (2024), section 2.1; Bai et al., Qwen2.5-VL (2025), section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.multimodal.family import Detail, Film, Laid
from runtime.multimodal.films import with_scenes
from runtime.multimodal.patching import Grid, Patching, by_size
from runtime.multimodal.prepared import Floats, Prepared
from runtime.multimodal.regions import grid_regions
from runtime.multimodal.smart_size import PixelBudget, smart_size

if TYPE_CHECKING:
    from PIL.Image import Image

_LOW_TOKENS = 256
"""Of a picture that is not to be looked at closely: half a megapixel is what most of them need."""

_SHARE = 0.9
"""Of the tokens that films may have; the rest is for what is said about them."""


class QwenVl:
    """The family with one model's parameters.

    Args:
        parameters: As `runtime.graphs.encoders.qwen_vl` gives them.
    """

    closer_alone = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.encoders: Mapping[Modality, str] = {Modality(name): file for name, file in parameters["encoders"].items()}
        self.placeholders: Mapping[Modality, str] = {
            Modality.IMAGE: str(parameters["image_token"]),
            Modality.VIDEO: str(parameters["video_token"]),
        }
        sizes = (int(parameters[name]) for name in ("patch", "frames", "merge", "window"))
        self._patching = Patching(*sizes)
        self._resample = int(parameters["resample"])
        self._picture_budget = _budget(parameters["image"])
        self._video: Mapping[str, Any] = parameters["video"]
        self._film_budget = _budget(self._video)
        self._most_tokens = int(parameters["most_tokens"])
        ticks = parameters["ticks_per_second"]
        self._ticks_per_second = None if ticks is None else float(ticks)

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """Whole tokens, within the budget.

        Raises:
            LimitExceededError: It is far longer than it is wide.
        """
        tokens = self._tokens(detail)
        if detail.level == "low":
            tokens = min(_LOW_TOKENS, tokens)
        budget = self._picture_budget.within(tokens * self._patching.token**2)
        return smart_size(width, height, self._patching.token, budget)

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """The picture as near to its own size as the budget allows.

        Raises:
            LimitExceededError: It is far longer than it is wide.
        """
        size = self.resolution(*picture.size, detail)
        grid = self._grid(1, size)
        patches = self._patching.still.cut([np.asarray(picture.resize(size, self._resample))], grid)
        return self._prepared(Modality.IMAGE, patches, grid)

    def video(self, film: Film, detail: Detail) -> Prepared:
        """The frames in pairs, all of one size.

        Raises:
            LimitExceededError: They are far longer than they are wide.
            MediaUnreadableError: There are none.
        """
        count, frames = len(film.times_s), iter(film.frames)
        first = next(frames, None)
        if first is None:
            raise MediaUnreadableError("the video has no frames to look at; send one with pictures")
        size = smart_size(*first.size, self._patching.token, self._frame_budget(count, detail))
        grid = self._grid(-(-count // self._patching.frames), size)
        small = [np.asarray(first.resize(size, self._resample))]
        del first  # no more than one frame of full size beside the one that is decoded
        others = (np.asarray(frame.resize(size, self._resample)) for frame in frames)
        patches = self._patching.cut(chain(small, others), grid)
        step = self._patching.frames * film.seconds / count
        return self._prepared(Modality.VIDEO, patches, grid, step, film)

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """So many a second as the model was trained on, in whole pairs, as long as the tokens are enough for them.

        Source: `sample_frames` of Qwen2-VL's video processor in transformers.
        """
        total = max(1, round(seconds * frames_per_second))
        rate = float(self._video["frames_per_second"]) / (2 if detail.level == "low" else 1)
        together = self._patching.frames
        most = min(int(self._video["max_frames"]), total)
        # No frame gets fewer tokens than a frame needs to be made out.
        needed = max(1, self._film_budget.fewest // self._patching.token**2)
        most = min(most, max(1, self._tokens(detail) // needed) * together)
        most = most // together * together
        wanted = min(max(seconds * rate, int(self._video["min_frames"])), most)
        count = max(1, int(wanted) // together * together)
        # In the middle of a frame, where no rounding of its time can hide it.
        moments = [(int(place * total / count) + 0.5) / frames_per_second for place in range(count)]
        return with_scenes(moments, cuts, seconds=seconds, most=most, each=together)

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """Not taken."""
        raise ModelUnsupportedError("the model takes no audio; send pictures, video or text")

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Patches of all pieces in a row, and who looks at whom."""
        grids: list[Grid] = [(int(one["grid"][0]), int(one["grid"][1]), int(one["grid"][2])) for one in inputs]
        return self._patching.packed([one["patches"] for one in inputs], grids)

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """The tokens of each piece, which ran in the order of their sizes."""
        order = by_size([piece.grid for piece in pieces])
        ends = np.cumsum([pieces[place].tokens for place in order])[:-1]
        found: dict[int, Floats] = dict(zip(order, np.split(outputs[0], ends), strict=True))
        return [found[place] for place in range(len(pieces))]

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """Sound is not taken."""
        return None

    def _frame_budget(self, count: int, detail: Detail) -> PixelBudget:
        """Pixels of each frame: a share of all that a film may have.

        Source: `fetch_video` of Qwen's qwen-vl-utils.
        """
        token, together = self._patching.token**2, self._patching.frames
        all_pixels = int(int(self._video["tokens"]) * token * _SHARE)
        budget = self._film_budget
        most = max(min(budget.most, all_pixels * together // count), int(budget.fewest * 1.05))
        if detail.level == "low":
            most = budget.fewest
        return budget.within(most).within(max(1, self._tokens(detail) // -(-count // together)) * token)

    def _tokens(self, detail: Detail) -> int:
        """The most tokens of a piece."""
        return self._most_tokens if detail.max_tokens is None else detail.max_tokens

    def _grid(self, steps: int, size: tuple[int, int]) -> Grid:
        width, height = size
        return steps, height // self._patching.token, width // self._patching.token

    def _prepared(
        self,
        modality: Modality,
        patches: NDArray[np.uint8],
        grid: Grid,
        step: float | None = None,
        film: Film | None = None,
    ) -> Prepared:
        steps, rows, columns = grid
        time, row, column = np.indices(grid, dtype=np.int32).reshape(3, -1)
        if film is not None and step is not None:
            time = self._ticks(film, step, steps)[time]
        return Prepared(
            modality=modality,
            inputs={"patches": patches, "grid": np.array(grid, np.int64)},
            frame=(FramePiece(slots=steps * rows * columns),),
            positions=np.stack([time, row, column]),
            grid=grid,
            regions=np.tile(grid_regions(rows, columns), (steps, 1)),
            seconds_per_step=step,
            start_s=None if film is None else film.times_s[0],
        )

    def _ticks(self, film: Film, step: float, steps: int) -> NDArray[np.int32]:
        """The time of each step in positions: by the clock where the model has one, else one by one."""
        ticks = np.arange(steps, dtype=np.float32)
        if self._ticks_per_second is not None:
            # In float32, as the reference has it: a step that ends on a tick may fall to either side of it.
            begin = np.array(film.times_s[:: self._patching.frames], np.float32) - np.float32(film.times_s[0])
            ticks = (ticks * np.float32(step) if film.even else begin) * np.float32(self._ticks_per_second)
        return ticks.astype(np.int32)


def _budget(parameters: Mapping[str, Any]) -> PixelBudget:
    return PixelBudget(int(parameters["min_pixels"]), int(parameters["max_pixels"]))
