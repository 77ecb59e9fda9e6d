"""Weights as blocks of small integers, the way ONNX Runtime's MatMulNBits takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MIDDLE = 128


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """A matrix in symmetric 8-bit blocks along its input axis.

    Attributes:
        values: uint8 `(out, blocks, block)`; 128 stands for zero.
        scales: float32 `(out, blocks)`.
        inputs: Length of the input axis.
        block: Elements that share a scale.
    """

    values: NDArray[np.uint8]
    scales: NDArray[np.float32]
    inputs: int
    block: int

    def dense(self) -> NDArray[np.float32]:
        """The matrix that the integers stand for, float32 `(out, in)`."""
        signed = self.values.astype(np.float32) - _MIDDLE
        return (signed * self.scales[:, :, None]).reshape(len(self.values), -1)[:, : self.inputs]


def quantize_blocks(weight: NDArray[np.float32], block: int = 16) -> BlockWeight:
    """Round a matrix to 8 bits with one scale for every `block` inputs.

    Args:
        weight: float32 `(out, in)`; the last block is padded with zeros.
        block: A power of two from 16; 16 loses less than 32 and is no slower.
    """
    outputs, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((outputs, blocks * block), np.float32)
    padded[:, :inputs] = weight
    grouped = padded.reshape(outputs, blocks, block)
    scales: NDArray[Any] = np.abs(grouped).max(axis=2) / 127
    safe = np.where(scales > 0, scales, 1)[:, :, None]
    values = (np.rint(grouped / safe) + _MIDDLE).astype(np.uint8)
    return BlockWeight(values, scales.astype(np.float32), inputs, block)
