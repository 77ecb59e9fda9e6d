"""A checkpoint's tensors under the names of a decoder's parts, each of the shape that it must have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bus.errors import ModelCorruptError
from runtime.graphs.decoder.parts import Part, block_parts, model_parts
from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.decoder.weights import Floats
from runtime.graphs.families.family import Family
from runtime.weights.tensors import Tensors, check_shape, finite

# Where the text model stands in a checkpoint: alone, under a head, or inside a model of several modalities.
_PREFIXES = ("model.", "", "model.language_model.", "language_model.model.", "model.text_model.", "thinker.model.")
_HEADS = ("lm_head", "language_model.lm_head", "model.lm_head", "thinker.lm_head")
# Constants that some files carry along.
_CONSTANTS = (".rotary_emb.inv_freq", ".attn.bias", ".masked_bias")


class DecoderWeights:
    """Reads a decoder's weights out of a checkpoint.

    Args:
        tensors: The checkpoint.
        family: What its tensors are called.
        shape: What it must hold.
        beside: Beginnings of tensors that are there for something else, such as encoders of the same model.

    Raises:
        ModelCorruptError: A tensor that is missing, of another shape, or that no part of the decoder takes.
    """

    def __init__(self, tensors: Tensors, family: Family, shape: DecoderShape, beside: tuple[str, ...] = ()) -> None:
        self._tensors, self._family, self._shape, self._beside = tensors, family, shape, beside
        self._parts = model_parts(shape) | {
            f"blocks.{layer}.{name}": part for layer in range(shape.layers) for name, part in block_parts(shape).items()
        }
        table = f"{family.names['embeddings'][0]}.weight"
        self._prefix = next((prefix for prefix in _PREFIXES if f"{prefix}{table}" in tensors.shapes), _PREFIXES[0])
        self._head = next((head for head in _HEADS if f"{head}.weight" in tensors.shapes), _HEADS[0])
        self._check()

    def __call__(self, name: str) -> Floats:
        """A weight by the graph's name, float32, `(out, in)` or `(width,)`.

        Raises:
            ModelCorruptError: It holds numbers that are not finite.
        """
        if name == "head" and self._shape.tied:
            name = "embeddings"
        base = name.removesuffix(".bias")
        part, suffix = self._parts[base], "weight" if base == name else "bias"
        pieces = [finite(self._tensors, f"{place}.{suffix}") for place in self._places(base)]
        weight = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return weight + np.float32(self._shape.norm_offset) if part.is_norm and suffix == "weight" else weight

    def _places(self, name: str) -> tuple[str, ...]:
        """Where a part is stored, without `.weight`."""
        if name == "head":
            return (self._head,)
        *block, part = name.split(".")
        inside = f"{self._prefix}layers.{block[1]}." if block else self._prefix
        return tuple(f"{inside}{place}" for place in self._family.names[part])

    def _expected(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, part in self._parts.items():
            places = self._places(name)
            for place, size in zip(places, part.shapes(len(places)), strict=True):
                yield f"{place}.weight", size
            if part.bias:
                flat = Part(part.pieces)
                for place, size in zip(places, flat.shapes(len(places)), strict=True):
                    yield f"{place}.bias", size

    def _check(self) -> None:
        found = self._tensors.shapes
        expected = dict(self._expected())
        for name, size in expected.items():
            check_shape(self._tensors, name, size)
        unknown = sorted(name for name in found if name not in expected and not self._may_be_there(name))
        if unknown:
            raise ModelCorruptError(
                f"the checkpoint has {len(unknown)} tensors that the {self._family.model_types[0]} family does not "
                f"take, such as {unknown[0]!r}; is config.json of another model?",
                tensor=unknown[0],
            )

    def _may_be_there(self, name: str) -> bool:
        copied = self._shape.tied and name == f"{self._head}.weight"
        beside = any(name.removeprefix("model.").startswith(prefix) for prefix in self._family.ignored)
        return copied or beside or name.startswith(self._beside) or name.endswith(_CONSTANTS)
