"""From the bytes of square pictures to the patches of a vision transformer.

Source: Zhai et al., SigLIP (2023); Dehghani et al., Patch n' Pack (2023), for positions by share of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from bus.errors import ModelUnsupportedError
from runtime.graphs.encoders.pixels import Floats, Normalisation
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import Graph
from runtime.weights.tensors import CheckedTensors

FLOAT = 1
"""ONNX's number for float32."""

MOST_ON_A_SIDE = 256
"""Patches beyond which a picture is no such thing, but would fill the memory."""


@dataclass(frozen=True, slots=True)
class PatchShape:
    """How a tower cuts pictures.

    Attributes:
        patch: Rows and columns of pixels in a patch.
        trained: Patches on a side of the picture that its table of positions was trained on.
        hidden: Width of the tower.
    """

    patch: int
    trained: int
    hidden: int

    @classmethod
    def read(cls, config: ModelConfig) -> PatchShape:
        """Read a tower's part of a configuration.

        Raises:
            ModelUnsupportedError: Pictures of other than three channels.
            ModelCorruptError: Sizes that are missing or no such numbers.
        """
        if config.size("num_channels", 3) != 3:
            raise ModelUnsupportedError(f"pictures of {config.size('num_channels')} channels are not taken; 3 are")
        patch = config.size("patch_size", most=4096)
        trained = config.size("image_size", most=65_536) // patch
        if not 1 <= trained <= MOST_ON_A_SIDE:
            raise config.wrong("image_size", f"1 to {MOST_ON_A_SIDE} patches of {patch}")
        return cls(patch, trained, config.size("hidden_size"))


def embedding(
    read: CheckedTensors, shape: PatchShape, normalisation: Normalisation, prefix: str
) -> tuple[Floats, Floats]:
    """The matrix `(hidden, row · column · channel)` and bias of a patch embedding that takes bytes."""
    size = (shape.hidden, 3, shape.patch, shape.patch)
    weight = read(f"{prefix}embeddings.patch_embedding.weight", *size)
    return normalisation.into(weight, read(f"{prefix}embeddings.patch_embedding.bias", shape.hidden))


def positions(read: CheckedTensors, shape: PatchShape, prefix: str) -> Floats:
    """The trained table of positions, `(row · column, hidden)`."""
    return read(f"{prefix}embeddings.position_embedding.weight", shape.trained**2, shape.hidden)


def square_patches(graph: Graph, pixels: str, side: int, patch: int, matrix: Floats, offset: Floats) -> str:
    """Embedded patches, float32 `(tile, patch, hidden)`.

    Args:
        graph: Gets the nodes.
        pixels: uint8 `(tile, row, column, channel)`, squares; what is left of `side` patches is not looked at.
        side: Patches on a side.
        patch: Rows and columns of a patch.
        matrix: `(hidden, row · column · channel)`.
        offset: What is added, `(patch, hidden)`: bias and position.
    """
    seen, axes = graph.constant(side * patch, side * patch), graph.constant(1, 2)
    whole = graph.node("Slice", [pixels, graph.constant(0, 0), seen, axes])
    cut = graph.node("Reshape", [whole, graph.constant(0, side, patch, side, patch, 3)])
    # Bytes are moved before they are floats, a quarter of the work.
    ordered = graph.node("Transpose", [cut], perm=[0, 1, 3, 2, 4, 5])
    flat = graph.node("Reshape", [ordered, graph.constant(0, side * side, patch * patch * 3)])
    embedded = graph.matmul(graph.node("Cast", [flat], to=FLOAT), "patches", matrix)
    return graph.node("Add", [embedded, graph.weight("patches.offset", offset)])
