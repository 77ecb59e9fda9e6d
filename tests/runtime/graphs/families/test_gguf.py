"""GGUF files against the folders that they were made from: the same shape, the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from transformers import PreTrainedModel

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.checkpoint import open_decoder
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of
from runtime.weights.gguf import GgufFile
from tests.runtime import reference
from tests.runtime.graphs.families.cases import Case

MODELS = (
    Case("llama", "Llama"),
    Case("qwen2", "Qwen2", {"tie_word_embeddings": True}),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
)


def write(path: Path, model: PreTrainedModel, architecture: str) -> Path:
    """A file as llama.cpp's converter writes it."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = weight.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if heads and architecture == "llama":  # `permute` of llama.cpp's convert_hf_to_gguf.py
            array = array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(str(names.get_name(name, (".weight", ".bias"))), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_a_gguf_file_is_read_as_the_folder_that_it_was_made_from(case: Case, tmp_path: Path) -> None:
    model = case.model()
    right_shape, right = open_decoder(reference.save(model, tmp_path))
    checkpoint = GgufCheckpoint(GgufFile(write(tmp_path / "model.gguf", model, case.name)))
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
    return GgufFile(write(tmp_path / "model.gguf", MODELS[0].model(), "llama"))


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
