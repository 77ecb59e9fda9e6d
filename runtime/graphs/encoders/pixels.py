"""Pixels as an encoder takes them: whole bytes, whose normalisation is part of the first matrix.

Bytes are a quarter of the floats that they stand for, on every way that a picture takes; and `(x · scale − mean) / std`
is one factor and one summand a channel, which the weights and the bias of the patch embedding can hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.families.config import ModelConfig

Floats = NDArray[np.float32]

_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What pixels of 0 to 255 become.

    Attributes:
        scale: Their factor.
        mean: Taken off each channel behind it, red, green, blue.
        std: What each channel is divided by.
    """

    scale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def read(cls, config: ModelConfig, mean: tuple[float, ...], std: tuple[float, ...]) -> Self:
        """Read it from a processor's configuration.

        Args:
            config: The configuration.
            mean: Of the family, where it is not given.
            std: Of the family, where it is not given.

        Raises:
            ModelCorruptError: Values that are no numbers for three channels.
        """
        scale = config.number("rescale_factor", 1 / 255) if config.flag("do_rescale", True) else 1.0
        if not config.flag("do_normalize", True):
            return cls(scale, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        stds = _channels(config, "image_std", std)
        if min(stds) <= 0:
            raise config.wrong("image_std", "numbers above 0")
        return cls(scale, _channels(config, "image_mean", mean), stds)

    def into(self, weight: Floats, bias: Floats | None) -> tuple[Floats, Floats]:
        """A patch embedding of normalised pixels as one of bytes.

        Args:
            weight: float32 `(out, channel, ..., row, column)`.
            bias: float32 `(out,)`.

        Returns:
            float32 `(out, in)` with the channel as the fastest axis of `in`, as bytes of a picture stand, and float32
            `(out,)`.
        """
        wide = np.moveaxis(weight.astype(np.float64), 1, -1) / np.array(self.std)
        taken = (wide * np.array(self.mean)).reshape(len(weight), -1).sum(axis=1)
        offset = -taken if bias is None else bias - taken
        return (wide * self.scale).reshape(len(weight), -1).astype(np.float32), offset.astype(np.float32)

    def apply(self, pixels: NDArray[Any]) -> Floats:
        """Normalise `(..., channel)` bytes, float32, as an encoder of floats would have them."""
        factor = (self.scale / np.array(self.std)).astype(np.float32)
        taken = (np.array(self.mean) / np.array(self.std)).astype(np.float32)
        normalised: Floats = pixels * factor - taken
        return normalised


def resampling(config: ModelConfig, default: int) -> int:
    """Pillow's number of the filter that pictures are made smaller and larger with.

    Raises:
        ModelCorruptError: No such number.
    """
    value = config.get("resample", default)
    if not isinstance(value, int) or not 0 <= value <= 5:
        raise config.wrong("resample", "the number of a filter from 0 to 5")
    return int(value)


def _channels(config: ModelConfig, name: str, default: tuple[float, ...]) -> tuple[float, float, float]:
    value = config.get(name, list(default))
    values = value if isinstance(value, list) else [value] * 3
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(values) != 3 or len(numbers) != 3 or not all(abs(one) <= _LARGEST for one in numbers):
        raise config.wrong(name, f"a number of at most {_LARGEST} for each of three channels")
    red, green, blue = map(float, values)
    return red, green, blue
