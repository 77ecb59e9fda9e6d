"""Safetensors files, written here as the format's own page describes them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.weights.safetensors import SafetensorsFile


def write(path: Path, header: dict[str, Any], data: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(kind: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def test_tensors_come_back_as_they_were_written(tmp_path: Path) -> None:
    floats = np.arange(6, dtype="<f4").reshape(2, 3)
    longs = np.array([-1, 2**40], "<i8")
    header = {"__metadata__": {"by": "hand"}, "f": entry("F32", [2, 3], 0, 24), "l": entry("I64", [2], 24, 40)}
    file = SafetensorsFile(write(tmp_path / "x", header, floats.tobytes() + longs.tobytes()))
    assert list(file) == ["f", "l"]
    assert file.metadata == {"by": "hand"}
    np.testing.assert_array_equal(file.tensor("f"), floats)
    np.testing.assert_array_equal(file.tensor("l"), longs)


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    raw = struct.pack("<HHH", 0x3F80, 0xC000, 0x3E80)
    file = SafetensorsFile(write(tmp_path / "x", {"b": entry("BF16", [3], 0, 6)}, raw))
    assert file.tensor("b").tolist() == [1.0, -2.0, 0.25]


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"f": entry("F32", [2], 0, 8)}, b"1234"),
        ({"f": entry("F32", [3], 0, 8)}, bytes(8)),
        ({"f": entry("F32", [2], -8, 0)}, bytes(8)),
        ({"f": entry("F8_E5M2", [2], 0, 2)}, bytes(2)),
        ({"f": {"dtype": "F32"}}, bytes(8)),
        ({"f": []}, b""),
    ],
    ids=["cut short", "wrong size", "outside", "unknown type", "no shape", "no entry"],
)
def test_a_file_that_contradicts_itself_is_refused(header: dict[str, Any], data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"x\.safetensors"):
        SafetensorsFile(write(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("content", [b"", b"123", struct.pack("<Q", 999) + b"{}", struct.pack("<Q", 2) + b"no"])
def test_what_is_no_such_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelCorruptError):
        SafetensorsFile(tmp_path / "x")
