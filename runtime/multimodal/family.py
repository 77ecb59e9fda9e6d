"""What a family of multimodal models is while it serves: how media become encoder inputs and tokens of a prompt.

A family is made from the parameters that its build wrote into the model's manifest; it holds no session and no weights,
so that a worker without the model's encoders can prepare media for them. Its graphs are built in
`runtime.graphs.encoders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bus.contracts import FramePiece, Modality
from runtime.multimodal.prepared import Floats, Positions, Prepared

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How closely media are to be looked at.

    Attributes:
        level: OpenAI's `low`, `high` or `auto`: the model's own way to spend fewer tokens, such as no tiles or fewer
            pixels.
        max_tokens: The most tokens of this piece; None: the family's own limit.
        alone: Whether it is the only picture of its prompt: some families look closer then.
    """

    level: str = "auto"
    max_tokens: int | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Film:
    """Frames of a video.

    Attributes:
        frames: RGB, upright, in order of time, as many as `times_s`; gone through once, so that they can be decoded one
            by one, and are as small as they are needed before the next one comes.
        times_s: When each is on show, in seconds from the start of the video.
        seconds: Length of the video.
        even: Whether they are evenly spread over it, but for the rounding to whole frames.
    """

    frames: Iterable[Image]
    times_s: Sequence[float]
    seconds: float
    even: bool = True


@dataclass(frozen=True, slots=True)
class Laid:
    """Embeddings and how they stand in the prompt.

    Attributes:
        embeddings: float32 `(token, dim)`.
        positions: int32 `(3, token)`, from 0.
        frame: Pieces whose slots the embeddings fill, in order.
        seconds_per_step: Seconds between two time steps; None for a still.
        regions: float32 `(token, 4)`: left, top, right, bottom of what each token sees, as shares of the upright
            picture; None for sound, and where tokens have no place.
    """

    embeddings: Floats
    positions: Positions
    frame: tuple[FramePiece, ...]
    seconds_per_step: float | None = None
    regions: Floats | None = None


class MultimodalFamily(Protocol):
    """A family with one model's parameters.

    Attributes:
        encoders: The file of the graph that encodes each modality, in the model's folder; a modality that is not there
            is not taken.
        placeholders: What the model's chat template writes where a piece of media belongs.
        closer_alone: Whether a picture that is the only one of its prompt is prepared otherwise (`Detail.alone`).
    """

    encoders: Mapping[Modality, str]
    placeholders: Mapping[Modality, str]
    closer_alone: bool

    def resolution(self, width: int, height: int, detail: Detail) -> tuple[int, int]:
        """The width and height of the largest picture that `image` makes of one of some size, all in pixels.

        Raises:
            LimitExceededError: A picture that it does not take.
        """
        ...

    def image(self, picture: Image, detail: Detail) -> Prepared:
        """Prepare an RGB picture that stands upright."""
        ...

    def video(self, film: Film, detail: Detail) -> Prepared:
        """Prepare a video's frames."""
        ...

    def frames(
        self, seconds: float, frames_per_second: float, detail: Detail, cuts: Sequence[float] = ()
    ) -> Sequence[float]:
        """The moments of a video that the model looks at, in seconds.

        Args:
            seconds: Length of the video.
            frames_per_second: Of the video itself.
            detail: How closely.
            cuts: Where its scenes begin, as far as is known, in seconds.
        """
        ...

    def audio(self, samples: Floats, detail: Detail) -> Prepared:
        """Prepare float32 `(sample,)`, mono, 16 kHz."""
        ...

    def pack(self, modality: Modality, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """What the encoder graph takes for several pieces at once."""
        ...

    def unpack(self, modality: Modality, outputs: Sequence[NDArray[Any]], pieces: Sequence[Prepared]) -> list[Floats]:
        """Embeddings float32 `(token, dim)` of each piece from what the encoder graph gave for all."""
        ...

    def join(self, picture: Laid, sound: Laid) -> Laid | None:
        """A video and its own sound track as one; None: the model takes them one after the other."""
        ...


def concatenated(inputs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Every input of several pieces along its first axis."""
    return {name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]}


def split(embeddings: NDArray[Any], pieces: Sequence[Prepared]) -> list[Floats]:
    """Rows of `(token, dim)` or `(tile, token, dim)` in the order of the pieces that they belong to."""
    rows = embeddings.reshape(-1, embeddings.shape[-1])
    ends = np.cumsum([piece.tokens for piece in pieces])[:-1]
    return np.split(rows, ends)
