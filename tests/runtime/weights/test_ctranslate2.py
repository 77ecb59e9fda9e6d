"""CTranslate2 files, written here byte by byte after the format's description."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.weights.ctranslate2 import CTranslate2File

TENSORS: dict[str, NDArray[np.generic]] = {
    "encoder/weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "encoder/half": np.array([1.5, -2.0, 65504], np.float16),
    "encoder/small": np.array([[-128, 127]], np.int8),
    "decoder/num_heads": np.array(8, np.int16),
    "decoder/wide": np.array([2**31 - 1], np.int32),
}
CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}


def text(value: str) -> bytes:
    raw = value.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def written() -> bytes:
    out = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(TENSORS))
    for name, array in TENSORS.items():
        out += text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        out += struct.pack("<BI", CODES[array.dtype.name], array.nbytes) + array.tobytes()
    return out + struct.pack("<I", 1) + text("decoder/projection") + text("encoder/weight")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.bin"


def test_every_tensor_comes_back_as_it_was_written(path: Path) -> None:
    path.write_bytes(written())
    file = CTranslate2File(path)
    assert file.spec == "WhisperSpec"
    assert set(file) == set(TENSORS)
    for name, array in TENSORS.items():
        assert file.tensor(name).dtype == array.dtype
        assert np.array_equal(file.tensor(name), array)


def test_aliases_name_the_same_tensor(path: Path) -> None:
    path.write_bytes(written())
    file = CTranslate2File(path)
    assert "decoder/projection" in file
    assert np.array_equal(file.tensor("decoder/projection"), TENSORS["encoder/weight"])


def test_half_precision_is_widened(path: Path) -> None:
    path.write_bytes(written())
    widened = CTranslate2File(path).float32("encoder/half")
    assert widened.dtype == np.float32
    assert widened.tolist() == [1.5, -2.0, 65504.0]


def test_a_file_cut_anywhere_is_corrupt(path: Path) -> None:
    whole = written()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelCorruptError):
            CTranslate2File(path)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, b"\x63\0\0\0"), (22, b"\xff\xff\xff\xff"), (6, b"\xff\xfe")],
    ids=["version", "count", "name"],
)
def test_damaged_fields_are_corrupt(path: Path, offset: int, value: bytes) -> None:
    data = bytearray(written())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(ModelCorruptError):
        CTranslate2File(path)


def test_a_missing_tensor_is_named(path: Path) -> None:
    path.write_bytes(written())
    with pytest.raises(ModelCorruptError, match="'decoder/nothing'"):
        CTranslate2File(path).tensor("decoder/nothing")
