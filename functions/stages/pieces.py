"""What a prompt is put together from: words, the model's own markup, and embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality


@dataclass(frozen=True, slots=True)
class Words:
    """Text that somebody wrote or said: never markup, whatever it looks like.

    Attributes:
        modality: What it was.
        text: What it says.
        part: The piece of media that it came from; None: it was written.
    """

    modality: Modality
    text: str
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Markup:
    """Text of the model's own chat template or of a block's frame, in which control tokens are control tokens.

    Attributes:
        text: The text.
        part: The piece of media whose frame it belongs to; None: the template's.
        modality: Of that piece.
        back: How many positions before the next free one it begins.
        once: Whether it is left out where the same markup stands just before.
        apart: Whether a space is put behind it before any other letter.
    """

    text: str
    part: int | None = None
    modality: Modality = Modality.TEXT
    back: int = 0
    once: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class SoftTokens:
    """A piece of a prompt that is no text.

    Attributes:
        modality: What it was.
        embeddings: float32 `(token, dim)`.
        positions: int32 `(3, token)`, from 0.
        part: The piece of media that it came from.
        frame: How its embeddings stand in the prompt, with markup between them; empty: in a row.
    """

    modality: Modality
    embeddings: NDArray[np.float32]
    positions: NDArray[np.int32]
    part: int | None = None
    frame: tuple[FramePiece, ...] = ()


Piece = Words | Markup | SoftTokens
