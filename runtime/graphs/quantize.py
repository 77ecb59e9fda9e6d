"""Weights as blocks of small integers, the way ONNX Runtime's MatMulNBits takes them.

Blocks of 4-bit integers keep a model's quality only where a block's offset may be any number, and the kernels that take
such offsets are an order of magnitude slower than those for whole ones. So an offset is split: its whole part is the
block's zero point, and what is left becomes the weight of one more input, the mean of the block's inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """A matrix in blocks of integers along its input axis.

    Attributes:
        values: uint8 `(out, blocks, block)`, each from 0 to `2 ** bits - 1`.
        scales: float32 `(out, blocks)`.
        zeros: uint8 `(out, blocks)`, the integer that stands for zero in each block; None: the middle one, in all.
        inputs: Length of the input axis.
        means: How many inputs are added behind them: the means of the first blocks' inputs.
        bits: 4 or 8.
    """

    values: NDArray[np.uint8]
    scales: Floats
    inputs: int
    bits: int = 8
    zeros: NDArray[np.uint8] | None = None
    means: int = 0

    @property
    def block(self) -> int:
        """Elements that share a scale."""
        return int(self.values.shape[2])

    def dense(self) -> Floats:
        """The matrix that the integers stand for, float32 `(out, in)`."""
        zeros = np.uint8(2 ** (self.bits - 1)) if self.zeros is None else self.zeros[:, :, None]
        signed = self.values.astype(np.float32) - zeros
        wide: Floats = (signed * self.scales[:, :, None]).reshape(len(self.values), -1)
        matrix = wide[:, : self.inputs].copy()
        offsets = wide[:, self.inputs : self.inputs + self.means] / np.float32(self.block)
        matrix[:, : self.means * self.block] += np.repeat(offsets, self.block, axis=1)
        return matrix

    def packed_values(self) -> NDArray[np.uint8]:
        """uint8 `(out, blocks, block * bits / 8)`; of two 4-bit values in a byte the first is in the lower half."""
        return self.values if self.bits == 8 else _in_pairs(self.values)

    def packed_zeros(self) -> NDArray[np.uint8] | None:
        """uint8 `(out * ceil(blocks * bits / 8),)`, packed as the values are, each row from a byte of its own."""
        if self.zeros is None or self.bits == 8:
            return None if self.zeros is None else self.zeros.reshape(-1)
        even = np.pad(self.zeros, ((0, 0), (0, self.zeros.shape[1] % 2)))
        return _in_pairs(even).reshape(-1)


def quantize_blocks(weight: Floats, block: int = 16) -> BlockWeight:
    """Round a matrix to 8 bits with one scale for every `block` inputs, symmetrically.

    Args:
        weight: float32 `(out, in)`; the last block is padded with zeros.
        block: A power of two from 16.
    """
    grouped = _grouped(weight, block)
    scales: NDArray[Any] = np.abs(grouped).max(axis=2) / 127
    values = np.rint(grouped / _safe(scales)) + 128
    return BlockWeight(values.astype(np.uint8), scales.astype(np.float32), weight.shape[1])


def quantize_to_4_bits(weight: Floats, block: int = 32) -> BlockWeight:
    """Round a matrix to the 16 equal steps between the smallest and the largest weight of every block, zero included.

    A matrix that was stored in such steps before (GGML's Q4_1, for one) is found again but for a thirtieth of a step,
    the rounding of the offsets. Any other loses at most half a step more.

    Args:
        weight: float32 `(out, in)`; where the last block is not full, offsets stay rounded to whole steps.
        block: A power of two from 16.
    """
    inputs = weight.shape[1]
    grouped = _grouped(weight, block)
    lows = np.minimum(grouped.min(axis=2), 0)
    scales = (np.maximum(grouped.max(axis=2), 0) - lows) / 15
    values = np.rint((grouped - lows[:, :, None]) / _safe(scales)).astype(np.uint8)
    zeros = np.rint(-lows / _safe(scales)[:, :, 0]).astype(np.uint8)
    stored = BlockWeight(values, scales, inputs, 4, zeros)
    # The columns of the means begin where the inputs end, which has to be the border of a block.
    return _with_means(stored, zeros, (lows + zeros * scales) * block) if inputs % block == 0 else stored


def _with_means(stored: BlockWeight, zeros: NDArray[np.uint8], left: Floats) -> BlockWeight:
    """Add the columns that the means are multiplied with: what is left of every block's offset, `(out, blocks)`."""
    grouped = _grouped(left, stored.block)
    # -8 reaches further than 7, so the value that is furthest from zero is put there.
    furthest = np.take_along_axis(grouped, np.abs(grouped).argmax(axis=2)[:, :, None], 2)[:, :, 0]
    steps: Floats = furthest / np.float32(-8)
    columns = (np.rint(grouped / _safe(steps)) + 8).clip(0, 15).astype(np.uint8)
    middle = np.full(steps.shape, 8, np.uint8)
    return replace(
        stored,
        values=np.concatenate([stored.values, columns], axis=1),
        scales=np.concatenate([stored.scales, steps], axis=1),
        zeros=np.concatenate([zeros, middle], axis=1),
        means=left.shape[1],
    )


def _in_pairs(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return values[..., 0::2] | (values[..., 1::2] << np.uint8(4))


def _grouped(weight: Floats, block: int) -> Floats:
    outputs, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((outputs, blocks * block), np.float32)
    padded[:, :inputs] = weight
    return padded.reshape(outputs, blocks, block)


def _safe(scales: NDArray[Any]) -> NDArray[Any]:
    """Scales to divide by, `(…, 1)`."""
    return np.where(scales != 0, scales, 1)[:, :, None]
