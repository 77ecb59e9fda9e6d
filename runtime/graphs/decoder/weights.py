"""How the weights of a decoder are read, and how its matrices are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.graphs.quantize import BlockWeight, quantize_blocks, quantize_to_4_bits

Floats = NDArray[np.float32]
ReadTensor = Callable[[str], Floats]
"""A weight by the names of `decoder.parts`, float32, `(out, in)`; `<name>.bias` is its bias."""

StoreMatrix = Callable[[str, Floats], Floats | BlockWeight]
"""How a matrix is kept, by its name: dense, or in blocks of small integers."""


def as_float(name: str, weight: Floats) -> Floats:
    """Keep every matrix as it is."""
    return weight


def in_8_bits(name: str, weight: Floats) -> BlockWeight:
    """Keep every matrix in 8-bit blocks of 16: the kernel rounds the activations in blocks of the same size."""
    return quantize_blocks(weight, 16)


def in_4_bits(name: str, weight: Floats) -> BlockWeight:
    """Keep every matrix in 4-bit blocks of 32, and the output head in 8 bits: an error there is not averaged out."""
    return quantize_blocks(weight, 32) if name == "head" else quantize_to_4_bits(weight)


QUANTISATIONS: dict[str, StoreMatrix] = {"float32": as_float, "q8": in_8_bits, "q4": in_4_bits}
"""How all matrices of a model are kept, by the name that a manifest gives it."""


def store_of(quantisation: str) -> StoreMatrix:
    """How matrices are kept under a name.

    Raises:
        InvalidInputError: No such name.
    """
    try:
        return QUANTISATIONS[quantisation]
    except KeyError:
        raise InvalidInputError(
            f"no quantisation {quantisation!r}; known: {', '.join(QUANTISATIONS)}", quantisation=quantisation
        ) from None
