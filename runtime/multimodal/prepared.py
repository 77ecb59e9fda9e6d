"""One piece of media on its way to being tokens: what its encoder reads, and how its tokens stand in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from bus.errors import EngineError

Floats = NDArray[np.float32]
Positions = NDArray[np.int32]


def in_a_row(tokens: int) -> Positions:
    """Positions of tokens that follow each other as those of a text do, int32 `(3, token)`."""
    return np.tile(np.arange(tokens, dtype=np.int32), (3, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A picture, a film or a clip as its encoder takes it.

    Attributes:
        modality: What it is.
        inputs: Arrays by the names of the encoder graph's inputs, of this piece alone; a family's `pack` puts those of
            several pieces together.
        frame: How its tokens stand in the prompt, in order.
        positions: int32 `(3, token)`: time, height, width of each embedding, from 0; what `frame` says in words is
            not in it.
        grid: Time steps, rows and columns of tokens.
        regions: float32 `(token, 4)`: left, top, right, bottom of what each token sees, as shares of the upright
            picture; None for sound.
        seconds_per_step: Seconds between two time steps of the grid; None for a still.
        start_s: When the first time step begins.

    Raises:
        EngineError: Parts that contradict each other.
    """

    modality: Modality
    inputs: Mapping[str, NDArray[Any]]
    frame: tuple[FramePiece, ...]
    positions: Positions
    grid: tuple[int, int, int]
    regions: Floats | None = None
    seconds_per_step: float | None = None
    start_s: float | None = None
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        tokens = sum(piece.slots for piece in self.frame)
        object.__setattr__(self, "tokens", tokens)
        shapes = {"positions": (self.positions.shape, (3, tokens))}
        if self.regions is not None:
            shapes["regions"] = (self.regions.shape, (tokens, 4))
        for name, (found, expected) in shapes.items():
            if found != expected:
                raise EngineError(f"{self.modality} was prepared with {name} {found} for {tokens} tokens: {expected}")
