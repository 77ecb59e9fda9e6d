"""CTranslate2's `model.bin`, mapped.

Source: the binary format written by `ModelSpec.save` of CTranslate2, versions 5 and 6.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError

_VERSIONS = (5, 6)
_DTYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_MAX_RANK = 8


class CTranslate2File:
    """An open model.

    Attributes:
        spec: What kind of model it is, such as `WhisperSpec`.

    Raises:
        ModelCorruptError: Not such a file, or a truncated one.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise self._corrupt("is empty")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        version = self._number("I")
        if version not in _VERSIONS:
            raise self._corrupt(f"has format version {version}; {_VERSIONS} are read")
        self.spec = self._text()
        self._number("I")  # revision of the spec: the tensors' names say all that matters
        self._tensors = dict(self._tensor() for _ in range(self._number("I")))
        self._aliases = {self._text(): self._text() for _ in range(self._number("I"))}

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self._aliases

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor as it is stored, read-only.

        Raises:
            ModelCorruptError: No such tensor.
        """
        found = self._tensors.get(self._aliases.get(name, name))
        if found is None:
            raise self._corrupt(f"has no tensor {name!r}")
        return found

    def float32(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32, a copy.

        Raises:
            ModelCorruptError: No such tensor.
        """
        return self.tensor(name).astype(np.float32)

    def _tensor(self) -> tuple[str, NDArray[Any]]:
        name = self._text()
        rank = self._number("B")
        if rank > _MAX_RANK:
            raise self._corrupt(f"gives tensor {name!r} {rank} axes")
        shape = tuple(self._number("I") for _ in range(rank))
        code, nbytes = self._number("B"), self._number("I")
        dtype = np.dtype(_DTYPES.get(code, "V0"))
        if dtype.itemsize * prod(shape) != nbytes or dtype.itemsize == 0:
            raise self._corrupt(f"gives tensor {name!r} {nbytes} bytes for type {code} and shape {shape}")
        start = self._skip(nbytes)
        return name, np.frombuffer(self._data, dtype, prod(shape), start).reshape(shape)

    def _text(self) -> str:
        length = self._number("H")
        start = self._skip(length)
        try:
            return self._data[start : start + length].rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(f"has a name that is no text at byte {start}") from error

    def _number(self, code: str) -> int:
        kind = struct.Struct("<" + code)
        return int(kind.unpack_from(self._data, self._skip(kind.size))[0])

    def _skip(self, nbytes: int) -> int:
        start = self._at
        self._at += nbytes
        if self._at > len(self._data):
            raise self._corrupt(f"ends at byte {len(self._data)}, in the middle of something")
        return start

    def _corrupt(self, problem: str) -> ModelCorruptError:
        return ModelCorruptError(f"{self._name} {problem}; pull the model again", file=self._name)
