"""The tensors of a checkpoint, whatever its format, and what a model asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError

Floats = NDArray[np.float32]


class Tensors(Protocol):
    """An open checkpoint."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape by tensor name, outermost axis first."""

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor."""


class CheckedTensors:
    """Gives tensors of the shapes that a configuration asks for, and remembers which were asked for.

    Args:
        tensors: The checkpoint.
        prefix: What stands before every name in it.
    """

    def __init__(self, tensors: Tensors, prefix: str = "") -> None:
        self._tensors, self._prefix = tensors, prefix
        self._taken: set[str] = set()

    def __call__(self, name: str, *shape: int) -> Floats:
        """A tensor as float32.

        Raises:
            ModelCorruptError: It is missing, of another shape, or holds numbers that are not finite.
        """
        stored = f"{self._prefix}{name}"
        check_shape(self._tensors, stored, shape)
        self._taken.add(stored)
        return finite(self._tensors, stored)

    def check_nothing_left(self, *ignored: str) -> None:
        """Make sure that the checkpoint has nothing else.

        Args:
            ignored: Beginnings of names, without the prefix, that may be there all the same.

        Raises:
            ModelCorruptError: It has; names one.
        """
        left = sorted(
            name
            for name in self._tensors.shapes
            if name not in self._taken and not name.removeprefix(self._prefix).startswith(ignored)
        )
        if left:
            raise ModelCorruptError(
                f"the checkpoint has {len(left)} tensors that the model does not take, such as {left[0]!r}; is "
                "config.json of another model?",
                tensor=left[0],
            )


def check_shape(tensors: Tensors, name: str, shape: tuple[int, ...]) -> None:
    """Compare a tensor with what a configuration asks for.

    Raises:
        ModelCorruptError: It is missing or of another shape.
    """
    found = tensors.shapes.get(name)
    if found is None:
        raise ModelCorruptError(f"the checkpoint has no tensor {name!r}; config.json asks for it", tensor=name)
    if found != shape:
        raise ModelCorruptError(f"tensor {name!r} has shape {found}, config.json asks for {shape}", tensor=name)


def finite(tensors: Tensors, name: str) -> Floats:
    """A tensor as float32.

    Raises:
        ModelCorruptError: It holds numbers that are not finite.
    """
    weight = np.asarray(tensors.tensor(name), np.float32)
    if not np.isfinite(weight).all():
        raise ModelCorruptError(f"tensor {name!r} holds numbers that are not finite", tensor=name)
    return weight
