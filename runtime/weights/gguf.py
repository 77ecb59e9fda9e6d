"""GGUF files, mapped and dequantised tensor by tensor.

Source: the GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bus.errors import ModelCorruptError
from runtime.weights.blocks import ENCODINGS, Bytes, Encoding, Floats

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class _Tensor:
    encoding: Encoding
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.encoding.block * self.encoding.nbytes


class GgufFile:
    """An open GGUF file.

    Attributes:
        metadata: Keys and values of the header: numbers, strings, lists of them.

    Raises:
        ModelCorruptError: Not a GGUF file, one of a version we do not read, or a truncated one.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise self._corrupt("is empty")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._data: Bytes = np.frombuffer(mapped, np.uint8)
        reader = _Reader(mapped)
        try:
            self.metadata, self._tensors = self._header(reader)
        except (struct.error, ValueError, KeyError, IndexError, TypeError, ArithmeticError, RecursionError) as error:
            raise self._corrupt(f"has a damaged header: {error!r}") from error
        self._check_extent()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape by tensor name, outermost axis first."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def tensor(self, name: str) -> Floats:
        """A tensor as float32, outermost axis first.

        Raises:
            ModelCorruptError: No such tensor.
        """
        if name not in self._tensors:
            raise self._corrupt(f"has no tensor {name!r}")
        found = self._tensors[name]
        raw = self._data[found.offset : found.offset + found.nbytes]
        return found.encoding.decode(raw.reshape(-1, found.encoding.nbytes)).reshape(found.shape)

    def _header(self, reader: _Reader) -> tuple[dict[str, Any], dict[str, _Tensor]]:
        magic, version = reader.take("4sI")
        if magic != b"GGUF" or version not in (2, 3):
            raise self._corrupt(f"begins with {magic!r} version {version}, not with GGUF version 2 or 3")
        tensor_count, key_count = reader.take("QQ")
        metadata = {reader.string(): reader.value(reader.take("I")[0]) for _ in range(key_count)}
        infos = [self._info(reader) for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment % 8:
            raise self._corrupt(f"gives {alignment!r} as its alignment, not a multiple of 8")
        start = -(-reader.position // alignment) * alignment
        return metadata, {name: _Tensor(encoding, shape, start + offset) for name, encoding, shape, offset in infos}

    def _info(self, reader: _Reader) -> tuple[str, Encoding, tuple[int, ...], int]:
        name = reader.string()
        (axes,) = reader.take("I")
        shape = tuple(reversed(reader.take(f"{min(axes, 8)}Q")))
        kind, offset = reader.take("IQ")
        if kind not in ENCODINGS:
            known = ", ".join(encoding.name for encoding in ENCODINGS.values())
            raise self._corrupt(f"has tensor {name!r} of GGML type {kind}; {known} are read")
        encoding = ENCODINGS[kind]
        if prod(shape[-1:]) % encoding.block:
            raise self._corrupt(
                f"has tensor {name!r} of shape {shape}, whose rows are no whole blocks of {encoding.block}"
            )
        return name, encoding, shape, offset

    def _check_extent(self) -> None:
        for name, tensor in self._tensors.items():
            if tensor.offset + tensor.nbytes > len(self._data):
                raise self._corrupt(f"ends at {len(self._data)} bytes, before tensor {name!r} does")

    def _corrupt(self, problem: str) -> ModelCorruptError:
        return ModelCorruptError(f"GGUF file {self._name} {problem}", file=self._name)


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._data, self.position)
        self.position += struct.calcsize(f"<{form}")
        return values

    def string(self) -> str:
        (length,) = self.take("Q")
        if length > len(self._data) - self.position:
            raise IndexError(f"a string of {length} bytes at {self.position}")
        text = self._data[self.position : self.position + length].decode("utf-8")
        self.position += length
        return text

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.take(_SCALARS[kind])[0]
        inner, count = self.take("IQ")
        if inner in _SCALARS:
            return list(self.take(f"{count}{_SCALARS[inner]}"))
        return [self.value(inner) for _ in range(count)]
