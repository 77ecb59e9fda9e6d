"""Files in which some bytes are wrong: each is read as far as it makes sense, or refused by name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as gguf_package
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of
from runtime.weights.gguf import GgufFile
from runtime.weights.safetensors import SafetensorsFile
from tests.runtime import tiny_llama

ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write_gguf(tmp_path_factory.mktemp("gguf") / "x.gguf", tiny_llama.weights())


def refusal(read: Callable[[], object]) -> str | None:
    """Why it was refused; None: it was read."""
    try:
        read()
    except (ModelCorruptError, ModelUnsupportedError) as error:
        return str(error)
    return None


def open_gguf(file: GgufFile) -> DecoderWeights:
    checkpoint = GgufCheckpoint(file)
    family = family_of(checkpoint.config)
    return DecoderWeights(checkpoint, family, family.shape(checkpoint.config))


def read_gguf(path: Path) -> None:
    weights = open_gguf(GgufFile(path))
    for name in ("embeddings", "norm", "head", "blocks.0.qkv", "blocks.1.down"):
        weights(name)


def damaged(whole: bytes, changes: list[tuple[int, int]]) -> bytes:
    data = bytearray(whole)
    for place, value in changes:
        data[place % len(data)] = value
    return bytes(data)


@ONE_FOLDER
@given(changes=st.lists(st.tuples(st.integers(0, 2200), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_gguf_file_with_wrong_bytes_is_read_or_refused(
    changes: list[tuple[int, int]], gguf: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(damaged(gguf.read_bytes(), changes))
    why = refusal(lambda: read_gguf(path))
    assert why is None or len(why) > 20


@ONE_FOLDER
@given(name=st.sampled_from(["general.architecture", *(f"llama.{key}" for key in (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.key_length"))]),
    value=VALUES)  # fmt: skip
def test_a_gguf_header_with_a_wrong_value_is_refused(name: str, value: Any, gguf: Path) -> None:
    file = GgufFile(gguf)
    if file.metadata.get(name) == value:
        return
    file.metadata[name] = value
    if refusal(lambda: open_gguf(file)) is None:
        # Nothing in the weights contradicts these.
        assert name.endswith(("context_length", "epsilon", "freq_base")) or value is None


def safetensors(header: bytes, nbytes: int = 64) -> bytes:
    return struct.pack("<Q", len(header)) + header + np.arange(nbytes, dtype=np.uint8).tobytes()


def read_safetensors(path: Path) -> None:
    file = SafetensorsFile(path)
    for name, shape in file.shapes.items():
        assert file.tensor(name).shape == shape


HEADER = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
        "c": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    }
).encode()


@ONE_FOLDER
@given(
    changes=st.lists(st.tuples(st.integers(0, len(HEADER) + 8), st.integers(0, 255)), min_size=1, max_size=3),
    length=st.integers(0, len(HEADER) + 72),
)
def test_a_safetensors_file_with_wrong_bytes_or_an_early_end_is_read_or_refused(
    changes: list[tuple[int, int]], length: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(damaged(safetensors(HEADER), changes)[: max(length, 1)])
    why = refusal(lambda: read_safetensors(path))
    assert why is None or "x.safetensors" in why


@ONE_FOLDER
@given(header=st.dictionaries(st.sampled_from(["a", "__metadata__"]), VALUES, max_size=2) | VALUES)
def test_a_header_of_anything_is_read_or_refused(header: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors(json.dumps(header).encode()))
    why = refusal(lambda: read_safetensors(path))
    assert why is None or "x.safetensors" in why


@ONE_FOLDER
@given(
    dtype=VALUES | st.just("F32"),
    shape=VALUES | st.lists(st.integers(-4, 4), max_size=3),
    offsets=VALUES | st.lists(st.integers(-8, 80) | st.floats(), min_size=2, max_size=2),
)
def test_an_entry_of_anything_is_read_or_refused(dtype: Any, shape: Any, offsets: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    path.write_bytes(safetensors(json.dumps({"a": entry}).encode()))
    why = refusal(lambda: read_safetensors(path))
    assert why is None or "x.safetensors" in why


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(safetensors(b"[" * 100_000))
    with pytest.raises(ModelCorruptError):
        SafetensorsFile(tmp_path / "x")


@pytest.mark.parametrize(
    ("kind", "alignment"), [("float32", 32.0), ("int32", -32), ("uint32", 0), ("uint32", 7), ("string", "32")]
)
def test_an_alignment_that_would_move_the_tensors_is_refused(kind: str, alignment: Any, tmp_path: Path) -> None:
    writer = gguf_package.GGUFWriter(tmp_path / "x.gguf", "llama")
    getattr(writer, f"add_{kind}")("general.alignment", alignment)
    writer.add_tensor("w", np.ones((4, 64), np.float32))
    finish(writer)
    with pytest.raises(ModelCorruptError, match="alignment"):
        GgufFile(tmp_path / "x.gguf")


@pytest.mark.parametrize("width", [1, 33, 63])
def test_rows_that_are_no_whole_blocks_are_refused(width: int, tmp_path: Path) -> None:
    writer = gguf_package.GGUFWriter(tmp_path / "x.gguf", "llama")
    kind = gguf_package.GGMLQuantizationType.Q8_0
    writer.add_tensor("w", gguf_package.quantize(np.ones((2, 64), np.float32), kind), raw_dtype=kind)
    finish(writer)
    whole = (tmp_path / "x.gguf").read_bytes()
    (tmp_path / "x.gguf").write_bytes(whole.replace(struct.pack("<QQ", 64, 2), struct.pack("<QQ", width, 2)))
    with pytest.raises(ModelCorruptError, match="no whole blocks of 32"):
        GgufFile(tmp_path / "x.gguf")


def finish(writer: gguf_package.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
