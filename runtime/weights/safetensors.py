"""Safetensors files, mapped.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


class SafetensorsFile:
    """An open safetensors file.

    Attributes:
        metadata: The file's own notes.
        shapes: Shape by tensor name, outermost axis first.

    Raises:
        ModelCorruptError: Not such a file, or a truncated one.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        with path.open("rb") as file:
            if path.stat().st_size < 8:
                raise self._corrupt("is shorter than a header")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        length = int.from_bytes(self._data[:8], "little")
        self._start = 8 + length
        if self._start > len(self._data):
            raise self._corrupt(f"announces a header of {length} bytes and has {len(self._data)} in all")
        try:
            header = json.loads(self._data[8 : self._start])
            self.metadata: dict[str, str] = header.pop("__metadata__", {})
            self._entries = {name: self._entry(name, entry) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._corrupt(f"has a damaged header: {error!r}") from error
        self.shapes: Mapping[str, tuple[int, ...]] = {name: shape for name, (_, shape, _) in self._entries.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor, read-only; BF16 comes as float32.

        Raises:
            ModelCorruptError: No such tensor.
        """
        if name not in self._entries:
            raise self._corrupt(f"has no tensor {name!r}")
        kind, shape, begin = self._entries[name]
        flat = np.frombuffer(self._data, _DTYPES[kind], prod(shape), self._start + begin)
        if kind == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        return flat.reshape(shape)

    def _entry(self, name: str, entry: dict[str, Any]) -> tuple[str, tuple[int, ...], int]:
        kind, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise self._corrupt(f"has tensor {name!r} of shape {shape} at {begin} to {end}")
        if kind not in _DTYPES:
            raise self._corrupt(f"has tensor {name!r} of type {kind}; {', '.join(_DTYPES)} are read")
        expected = prod(shape) * np.dtype(_DTYPES[kind]).itemsize
        if end - begin != expected or self._start + end > len(self._data):
            raise self._corrupt(f"has bytes {begin} to {end} for tensor {name!r} of {kind} {shape}")
        return kind, shape, begin

    def _corrupt(self, problem: str) -> ModelCorruptError:
        return ModelCorruptError(f"safetensors file {self._name} {problem}", file=self._name)
