"""How the weights of a decoder are read, and how its matrices are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.quantize import BlockWeight, quantize_blocks

Floats = NDArray[np.float32]
ReadTensor = Callable[[str], Floats]
"""A weight by the names of `decoder.parts`, float32, `(out, in)`; `<name>.bias` is its bias."""

StoreMatrix = Callable[[str, Floats], Floats | BlockWeight]
"""How a matrix is kept, by its name: dense, or in blocks of small integers."""


def as_float(name: str, weight: Floats) -> Floats:
    """Keep every matrix as it is."""
    return weight


def in_blocks(name: str, weight: Floats) -> BlockWeight:
    """Keep every matrix in 8-bit blocks."""
    return quantize_blocks(weight)
