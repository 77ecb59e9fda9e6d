"""The memory that keys and values of every running answer live in."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class KvPool:
    """A fixed number of rows of fixed capacity; rows 0 to n-1 are one block of memory, so a batch needs no copy.

    Memory that no token was written to is never touched, so it costs nothing yet.

    Args:
        least: Rows that there are at least, whether or not somebody's answer may stand in them.

    Attributes:
        slots: Rows that answers stand in.
        capacity: Tokens that fit into a row.
    """

    def __init__(self, *, layers: int, kv_heads: int, head_dim: int, slots: int, capacity: int, least: int = 1) -> None:
        self.slots = slots
        self.capacity = capacity
        self._parts: list[NDArray[np.float32]] = [
            _untouched((max(slots, least), kv_heads, capacity, head_dim)) for _ in range(2 * layers)
        ]

    @property
    def nbytes(self) -> int:
        """The most memory that the pool can take."""
        return sum(part.nbytes for part in self._parts)

    def rows(self, start: int, stop: int) -> list[NDArray[Any]]:
        """Keys and values in turn, layer by layer, float32 `(row, kv_head, capacity, head_dim)`."""
        return [part[start:stop] for part in self._parts]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a row into another row."""
        for part in self._parts:
            part[target, :, :length] = part[source, :, :length]

    def read(self, row: int, start: int, stop: int) -> NDArray[np.float32]:
        """A copy of some tokens of a row, float32 `(2 * layer, kv_head, token, head_dim)`."""
        return np.stack([part[row, :, start:stop] for part in self._parts])

    def write(self, row: int, tokens: NDArray[np.float32]) -> None:
        """Put tokens at the beginning of a row, float32 `(2 * layer, kv_head, token, head_dim)`."""
        for part, values in zip(self._parts, tokens, strict=True):
            part[row, :, : values.shape[1]] = values


def _untouched(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Zeros that take memory page by page as they are written.

    NumPy asks for huge pages, of which the first token of a row would clear and keep 2 MiB for every head and layer.
    """
    memory = mmap.mmap(-1, prod(shape) * 4)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)
