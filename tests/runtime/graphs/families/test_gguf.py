"""GGUF files against the folders that they were made from: the same shape, the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.checkpoint import open_decoder
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of
from runtime.weights.gguf import GgufFile
from tests.runtime import reference
from tests.runtime.graphs.families.cases import Case
from tests.runtime.graphs.families.gguf_files import write_gguf

MODELS = (
    Case("llama", "Llama"),
    Case("qwen2", "Qwen2", {"tie_word_embeddings": True}),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
)


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_a_gguf_file_is_read_as_the_folder_that_it_was_made_from(case: Case, tmp_path: Path) -> None:
    model = case.model()
    right_shape, right = open_decoder(reference.save(model, tmp_path))
    checkpoint = GgufCheckpoint(GgufFile(write_gguf(tmp_path / "model.gguf", model, case.name)))
    family = family_of(checkpoint.config)
    shape = family.shape(checkpoint.config)
    found = DecoderWeights(checkpoint, family, shape)
    # The file keeps epsilon in single precision.
    assert shape.norm_epsilon == pytest.approx(right_shape.norm_epsilon, rel=1e-6)
    assert replace(shape, norm_epsilon=right_shape.norm_epsilon) == right_shape
    names = ["embeddings", "norm", "head", "blocks.1.qkv", "blocks.2.gate_up", "blocks.0.attention_norm"]
    if shape.qkv_bias:
        names.append("blocks.1.qkv.bias")
    if shape.qk_norm:
        names += ["blocks.0.q_norm", "blocks.0.k_norm"]
    for name in names:
        np.testing.assert_array_equal(found(name), right(name))


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    return GgufFile(write_gguf(tmp_path / "model.gguf", MODELS[0].model(), "llama"))


def test_an_architecture_that_is_not_read_is_named_with_those_that_are(file: GgufFile) -> None:
    file.metadata["general.architecture"] = "mamba"
    with pytest.raises(ModelUnsupportedError, match=r"'mamba'.*llama"):
        GgufCheckpoint(file)


def test_stretched_positions_are_refused(file: GgufFile) -> None:
    file.metadata["llama.rope.scaling.type"] = "yarn"
    with pytest.raises(ModelUnsupportedError, match="'yarn'"):
        GgufCheckpoint(file)


def test_a_header_that_leaves_something_out_is_refused(file: GgufFile) -> None:
    del file.metadata["llama.block_count"]
    with pytest.raises(ModelCorruptError, match="block_count"):
        GgufCheckpoint(file)


def test_a_header_that_lies_about_the_heads_is_refused(file: GgufFile) -> None:
    file.metadata["llama.attention.head_count"] = 3
    file.metadata["llama.attention.head_count_kv"] = 3
    checkpoint = GgufCheckpoint(file)
    family = family_of(checkpoint.config)
    with pytest.raises(ModelCorruptError, match="q_proj"):
        DecoderWeights(checkpoint, family, family.shape(checkpoint.config))
