"""Block-quantised numbers of GGML as float32.

Source: the block structures of ggml (`ggml-common.h`): block_q4_0, block_q4_1, block_q8_0, block_q4_K,
block_q5_K, block_q6_K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a tensor type is stored.

    Attributes:
        name: GGML's name.
        block: Elements in a block.
        nbytes: Bytes in a block.
        decode: Raw blocks uint8 `(blocks, nbytes)` to float32 `(blocks, block)`.
    """

    name: str
    block: int
    nbytes: int
    decode: Callable[[Bytes], Floats]


def _view(raw: Bytes, dtype: Any) -> Floats:
    values: Floats = np.ascontiguousarray(raw).view(dtype).astype(np.float32)
    return values


def _bf16(raw: Bytes) -> Floats:
    return (np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _nibbles(raw: Bytes) -> Bytes:
    # The low halves of a block's bytes are its first elements, the high halves its last.
    return np.concatenate([raw & 0x0F, raw >> 4], axis=1)


def _q4_0(raw: Bytes) -> Floats:
    return _view(raw[:, :2], "<f2") * (_nibbles(raw[:, 2:]).astype(np.float32) - 8)


def _q4_1(raw: Bytes) -> Floats:
    return _view(raw[:, :2], "<f2") * _nibbles(raw[:, 4:]).astype(np.float32) + _view(raw[:, 2:4], "<f2")


def _q8_0(raw: Bytes) -> Floats:
    return _view(raw[:, :2], "<f2") * raw[:, 2:].view(np.int8).astype(np.float32)


def _k_scales(raw: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima of eight sub-blocks, 6 bits each in 12 bytes: the last four bytes hold the latter halves."""
    low, mid, high = raw[:, :4], raw[:, 4:8], raw[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_values(raw: Bytes, integers: Bytes) -> Floats:
    """Sub-blocks of integers, uint8 `(blocks, 8, 32)`, by the scales that a block begins with."""
    scales, minima = _k_scales(raw[:, 4:16])
    scales, minima = scales * _view(raw[:, :2], "<f2"), minima * _view(raw[:, 2:4], "<f2")
    values: Floats = integers.astype(np.float32) * scales[:, :, None] - minima[:, :, None]
    return values.reshape(len(raw), 256)


def _k_nibbles(raw: Bytes) -> Bytes:
    """128 bytes as eight sub-blocks; a sub-block of low halves comes before the one of high halves."""
    bytes_ = raw.reshape(len(raw), 4, 1, 32)
    return np.concatenate([bytes_ & 0x0F, bytes_ >> 4], axis=2).reshape(len(raw), 8, 32)


def _q4_k(raw: Bytes) -> Floats:
    return _k_values(raw, _k_nibbles(raw[:, 16:]))


def _q5_k(raw: Bytes) -> Floats:
    fifth = np.unpackbits(raw[:, 16:48, None], axis=2, bitorder="little").swapaxes(1, 2)
    return _k_values(raw, _k_nibbles(raw[:, 48:]) | (fifth << np.uint8(4)))


def _q6_k(raw: Bytes) -> Floats:
    count = len(raw)
    lows = raw[:, :128].reshape(count, 2, 1, 64)
    low = np.concatenate([lows & 0x0F, lows >> 4], axis=2).reshape(count, 8, 32)
    highs = raw[:, 128:192].reshape(count, 2, 1, 32)
    high = np.concatenate([(highs >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(count, 8, 32)
    values = (low | (high << 4)).astype(np.float32) - 32
    scales = raw[:, 192:208].view(np.int8).astype(np.float32) * _view(raw[:, 208:], "<f2")
    scaled: Floats = (values.reshape(count, 16, 16) * scales[:, :, None]).reshape(count, 256)
    return scaled


ENCODINGS = {
    0: Encoding("F32", 1, 4, lambda raw: _view(raw, "<f4")),
    1: Encoding("F16", 1, 2, lambda raw: _view(raw, "<f2")),
    2: Encoding("Q4_0", 32, 18, _q4_0),
    3: Encoding("Q4_1", 32, 20, _q4_1),
    8: Encoding("Q8_0", 32, 34, _q8_0),
    12: Encoding("Q4_K", 256, 144, _q4_k),
    13: Encoding("Q5_K", 256, 176, _q5_k),
    14: Encoding("Q6_K", 256, 210, _q6_k),
    30: Encoding("BF16", 1, 2, _bf16),
}
"""By GGML's type number."""
