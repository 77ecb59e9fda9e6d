"""PyTorch checkpoints (`.pth`) without PyTorch: a zip of storages and a pickle that may build tensors only.

Source: the layout that `torch.save` writes, `torch/serialization.py`: `<name>/data.pkl` and `<name>/data/<key>`; older
files begin with a pickled magic number and carry their storages after the pickles.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError

_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "?",
}  # fmt: skip
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001

Tensors = dict[str, NDArray[Any]]


def read_checkpoint(path: Path) -> Tensors:
    """The tensors of a state dict by name; BF16 comes as float32.

    Raises:
        ModelCorruptError: Truncated or damaged, not a state dict, or a pickle that would run code.
    """
    try:
        with path.open("rb") as file:
            state = _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)
    except pickle.UnpicklingError as error:
        raise ModelCorruptError(f"checkpoint {path.name} is refused: {error}", file=path.name) from error
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ModelCorruptError(f"checkpoint {path.name} is damaged: {error!r}", file=path.name) from error
    if not isinstance(state, dict) or not all(isinstance(value, np.ndarray) for value in state.values()):
        raise ModelCorruptError(f"checkpoint {path.name} is not a state dict of tensors", file=path.name)
    return {str(name): value for name, value in state.items()}


class _Unpickler(pickle.Unpickler):
    """Knows the few names that a state dict needs; everything else is refused before it is imported."""

    def __init__(self, file: IO[bytes], storage: Callable[[Any], NDArray[Any]]) -> None:
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _parameter
        if module == "torch" and name in _STORAGES:
            return name
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no state dict of tensors needs")

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        return self._storage(pid)


def _tensor(storage: NDArray[Any], offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if prod(shape) and not (0 <= offset <= last < len(storage) and all(step >= 0 for step in stride)):
        raise ValueError(f"a tensor of shape {shape} does not fit a storage of {len(storage)} elements")
    width = storage.itemsize
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, [step * width for step in stride])
    return view.copy()


def _parameter(data: NDArray[Any], *_: Any) -> NDArray[Any]:
    return data


def _elements(kind: str, raw: bytes) -> NDArray[Any]:
    flat: NDArray[Any] = np.frombuffer(raw, _STORAGES[kind])
    return (flat.astype(np.uint32) << 16).view(np.float32) if kind == "BFloat16Storage" else flat


def _read_zip(file: IO[bytes]) -> Any:
    with zipfile.ZipFile(file) as zipped:
        folder = next(name for name in [*zipped.namelist(), ""] if name.endswith("data.pkl")).removesuffix("data.pkl")
        known: dict[str, NDArray[Any]] = {}

        def storage(pid: Any) -> NDArray[Any]:
            _, kind, key, _, _ = pid
            if key not in known:
                known[key] = _elements(kind, zipped.read(f"{folder}data/{key}"))
            return known[key]

        return _Unpickler(io.BytesIO(zipped.read(f"{folder}data.pkl")), storage).load()


def _read_legacy(file: IO[bytes]) -> Any:
    """The layout before PyTorch 1.6; storages follow the pickles, so tensors are cut out after all are read."""
    file.seek(0)
    magic, protocol = (_Unpickler(file, _no_storage).load() for _ in range(2))
    if (magic, protocol) != (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        raise ValueError("it begins with neither a zip nor PyTorch's magic number")
    _Unpickler(file, _no_storage).load()  # sizes of C types on the machine that wrote it
    body = file.tell()
    kinds: dict[str, str] = {}
    sizes: dict[str, int] = {}

    def note(pid: Any) -> NDArray[Any]:
        _, kind, key, _, size = pid[:5]
        kinds[key], sizes[key] = kind, size
        return np.zeros(size, _STORAGES[kind] if kind != "BFloat16Storage" else np.float32)

    _Unpickler(file, note).load()
    keys = _Unpickler(file, _no_storage).load()
    storages: dict[str, NDArray[Any]] = {}
    for key in keys:
        size = int.from_bytes(file.read(8), "little")
        if size != sizes[key]:
            raise ValueError(f"storage {key} has {size} elements, expected {sizes[key]}")
        raw = file.read(size * np.dtype(_STORAGES[kinds[key]]).itemsize)
        storages[key] = _elements(kinds[key], raw)
    file.seek(body)
    return _Unpickler(file, lambda pid: storages[pid[2]]).load()


def _no_storage(pid: Any) -> NDArray[Any]:
    raise pickle.UnpicklingError(f"it has a storage where none belongs: {pid!r}")
