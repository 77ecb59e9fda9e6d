"""The tensors of a checkpoint that belong to its encoders, by one set of names whatever its age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from runtime.weights.tensors import Tensors


class EncoderTensors:
    """Tensors under our names.

    Args:
        tensors: The checkpoint.
        homes: Our beginning of a name by the one that a checkpoint has; of two that fit, the longer one counts.

    Attributes:
        shapes: Shape by our name, outermost axis first.
    """

    def __init__(self, tensors: Tensors, homes: Mapping[str, str]) -> None:
        self._tensors = tensors
        ordered = sorted(homes, key=len, reverse=True)
        self._stored: dict[str, str] = {}
        for name in tensors.shapes:
            home = next((home for home in ordered if name.startswith(home)), None)
            if home is not None:
                self._stored[homes[home] + name.removeprefix(home)] = name
        self.shapes: Mapping[str, tuple[int, ...]] = {ours: tensors.shapes[name] for ours, name in self._stored.items()}

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor by our name.

        Raises:
            ModelCorruptError: No such tensor.
        """
        return self._tensors.tensor(self._stored.get(name, name))
