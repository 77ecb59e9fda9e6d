"""PyTorch checkpoints, pickled here just as `torch.save` lays them out, without PyTorch."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.weights.checkpoint import read_checkpoint


class Storage:
    def __init__(self, kind: str, key: str, data: bytes, size: int) -> None:
        self.kind, self.key, self.data, self.size = kind, key, data, size


class Tensor:
    def __init__(self, storage: Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.parts: tuple[Any, ...] = (storage, offset, shape, stride, False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return (sys.modules["torch._utils"]._rebuild_tensor_v2, self.parts)


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> object:
        if isinstance(obj, Storage):
            return ("storage", getattr(sys.modules["torch"], obj.kind), obj.key, "cpu", obj.size)
        return None


@pytest.fixture(autouse=True)
def torch_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that a checkpoint's pickle refers to, so that one can be written."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in ("FloatStorage", "HalfStorage", "LongStorage", "BFloat16Storage"):
        setattr(torch, kind, type(kind, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*args: object) -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


def pickled(state: object) -> bytes:
    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump(state)
    return buffer.getvalue()


def zipped(path: Path, state: object, *storages: Storage) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", pickled(state))
        for storage in storages:
            file.writestr(f"model/data/{storage.key}", storage.data)
    return path


def legacy(path: Path, state: object, *storages: Storage) -> Path:
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    body = b"".join(pickle.dumps(part, protocol=2) for part in head) + pickled(state)
    body += pickle.dumps([storage.key for storage in storages], protocol=2)
    body += b"".join(storage.size.to_bytes(8, "little") + storage.data for storage in storages)
    path.write_bytes(body)
    return path


FLOATS = np.arange(12, dtype="<f4")
STORAGE = Storage("FloatStorage", "0", FLOATS.tobytes(), 12)


@pytest.mark.parametrize("write", [zipped, legacy])
def test_tensors_are_cut_out_of_their_storages(write: Any, tmp_path: Path) -> None:
    state = OrderedDict(
        whole=Tensor(STORAGE, 0, (3, 4), (4, 1)),
        turned=Tensor(STORAGE, 0, (4, 3), (1, 4)),
        piece=Tensor(STORAGE, 5, (2,), (1,)),
        single=Tensor(STORAGE, 7, (), ()),
    )
    tensors = read_checkpoint(write(tmp_path / "x.pth", state, STORAGE))
    np.testing.assert_array_equal(tensors["whole"], FLOATS.reshape(3, 4))
    np.testing.assert_array_equal(tensors["turned"], FLOATS.reshape(3, 4).T)
    np.testing.assert_array_equal(tensors["piece"], [5, 6])
    assert tensors["single"].shape == ()
    assert float(tensors["single"]) == 7


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    storage = Storage("BFloat16Storage", "0", np.array([0x3F80, 0xC000], "<u2").tobytes(), 2)
    tensors = read_checkpoint(zipped(tmp_path / "x.pth", {"b": Tensor(storage, 0, (2,), (1,))}, storage))
    assert tensors["b"].tolist() == [1.0, -2.0]


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("__import__('pathlib').Path('/nonexistent')",))


@pytest.mark.parametrize("write", [zipped, legacy])
def test_a_pickle_that_would_run_code_is_refused(write: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match="eval"):
        read_checkpoint(write(tmp_path / "x.pth", {"w": Harmful()}))


def test_a_tensor_outside_its_storage_is_refused(tmp_path: Path) -> None:
    state = {"w": Tensor(STORAGE, 8, (2, 4), (4, 1))}
    with pytest.raises(ModelCorruptError, match="does not fit"):
        read_checkpoint(zipped(tmp_path / "x.pth", state, STORAGE))


@pytest.mark.parametrize("write", [zipped, legacy])
def test_a_truncated_checkpoint_is_refused(write: Any, tmp_path: Path) -> None:
    whole = write(tmp_path / "x.pth", {"w": Tensor(STORAGE, 0, (12,), (1,))}, STORAGE).read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 10):
        (tmp_path / "cut.pth").write_bytes(whole[:length])
        with pytest.raises(ModelCorruptError, match=r"cut\.pth"):
            read_checkpoint(tmp_path / "cut.pth")


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match="not a state dict"):
        read_checkpoint(zipped(tmp_path / "x.pth", {"epoch": 3}))
