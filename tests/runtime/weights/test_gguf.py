"""GGUF files, against the reference package of the format."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.weights.gguf import GgufFile

QUANTISED = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")


def write(path: Path, tensors: dict[str, tuple[np.ndarray, gguf.GGMLQuantizationType]]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_string("general.name", "naïve 模型")
    writer.add_array("tokenizer.ggml.tokens", ["a", "Ġb", "ç"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_bool("yes", True)
    writer.add_float32("half", 0.5)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", QUANTISED)
def test_a_tensor_is_what_the_reference_package_makes_of_it(name: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[name]
    values = np.random.default_rng(1).standard_normal((6, 64)).astype(np.float32)
    stored = gguf.quantize(values, kind)
    file = GgufFile(write(tmp_path / "x.gguf", {"w": (stored, kind)}))
    np.testing.assert_array_equal(file.tensor("w"), gguf.dequantize(stored, kind))
    assert file.shapes == {"w": (6, 64)}


def test_a_six_bit_tensor_is_what_the_reference_package_makes_of_it(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q6_K
    stored = np.random.default_rng(2).integers(0, 256, (3, 2 * 210), dtype=np.uint8)
    for block in (0, 210):
        stored[:, block + 208 : block + 210] = np.array([0.01, 0.5, -2], np.float16)[:, None].view(np.uint8)
    file = GgufFile(write(tmp_path / "x.gguf", {"w": (stored, kind)}))
    np.testing.assert_array_equal(file.tensor("w"), gguf.dequantize(stored, kind))


@pytest.mark.parametrize(("name", "nbytes"), [("Q4_K", 144), ("Q5_K", 176)])
def test_a_tensor_of_nested_blocks_is_what_the_reference_package_makes_of_it(
    name: str, nbytes: int, tmp_path: Path
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    stored = np.random.default_rng(4).integers(0, 256, (3, 2 * nbytes), dtype=np.uint8)
    for block in (0, nbytes):
        stored[:, block : block + 2] = np.array([0.01, 0.5, -2], np.float16)[:, None].view(np.uint8)
        stored[:, block + 2 : block + 4] = np.array([0.3, -0.1, 4], np.float16)[:, None].view(np.uint8)
    file = GgufFile(write(tmp_path / "x.gguf", {"w": (stored, kind)}))
    np.testing.assert_array_equal(file.tensor("w"), gguf.dequantize(stored, kind))


def test_metadata_of_every_kind_is_read(tmp_path: Path) -> None:
    metadata = GgufFile(write(tmp_path / "x.gguf", {})).metadata
    assert metadata["llama.block_count"] == 3
    assert metadata["general.name"] == "naïve 模型"
    assert metadata["tokenizer.ggml.tokens"] == ["a", "Ġb", "ç"]
    assert metadata["numbers"] == [1, 2, 3]
    assert metadata["yes"] is True
    assert metadata["half"] == 0.5


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    values = np.ones((4, 64), np.float32)
    whole = write(tmp_path / "x.gguf", {"w": (values, gguf.GGMLQuantizationType.F32)}).read_bytes()
    for length in (0, 3, 10, 30, 100, len(whole) // 2, len(whole) - 40):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(ModelCorruptError, match=r"cut\.gguf"):
            GgufFile(tmp_path / "cut.gguf")


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelCorruptError, match="not with GGUF"):
        GgufFile(tmp_path / "x.gguf")


def test_a_tensor_type_that_is_not_read_is_named(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q5_1
    stored = gguf.quantize(np.ones((1, 32), np.float32), kind)
    with pytest.raises(ModelCorruptError, match="GGML type 7"):
        GgufFile(write(tmp_path / "x.gguf", {"w": (stored, kind)}))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match="no tensor 'w'"):
        GgufFile(write(tmp_path / "x.gguf", {})).tensor("w")
