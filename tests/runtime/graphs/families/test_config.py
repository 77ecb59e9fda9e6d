"""Configurations as they stand on hubs, which leave out or name otherwise what transformers writes today."""

from __future__ import annotations

from typing import Any

import pytest

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import family_of, text_model

GEMMA_3_1B = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": None,
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144,
}  # fmt: skip
GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    "vision_config": {"hidden_size": 1152},
}  # fmt: skip
QWEN_25_05B = {
    "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
    "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
SMOLLM_3 = {
    "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536, "model_type": "smollm3",
    "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "rope_theta": 5000000.0,
    "no_rope_layer_interval": 4, "rms_norm_eps": 1e-06, "use_sliding_window": False, "vocab_size": 128256,
}  # fmt: skip
PHI_2 = {
    "hidden_act": "gelu_new", "hidden_size": 2560, "intermediate_size": 10240, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "model_type": "phi", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": False, "rope_scaling": None,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": 51200,
}  # fmt: skip


def shape(values: dict[str, Any]) -> DecoderShape:
    config = text_model(ModelConfig(values))
    return family_of(config).shape(config)


def test_gemma_3_without_kinds_of_layers() -> None:
    found = shape(GEMMA_3_1B)
    assert [layer for layer, block in enumerate(found.blocks) if block.window is None] == [5, 11, 17, 23]
    whole, local = found.blocks[5].rotary, found.blocks[0].rotary
    assert whole is not None
    assert local is not None
    assert whole.frequencies[1] == pytest.approx(1e6 ** (-2 / 256))
    assert local.frequencies[1] == pytest.approx(1e4 ** (-2 / 256))
    assert found.blocks[0].window == 512
    assert found.tied
    assert found.attention_scale == pytest.approx(1 / 16)
    assert found.embedding_scale == pytest.approx(1152**0.5)


def test_gemma_3_with_eyes_leaves_out_what_its_class_assumes() -> None:
    found = shape(GEMMA_3_4B)
    assert (found.heads, found.kv_heads, found.head_dim, found.vocabulary) == (8, 4, 256, 262208)
    whole, local = found.blocks[5].rotary, found.blocks[0].rotary
    assert whole is not None
    assert local is not None
    assert whole.frequencies[0] == pytest.approx(1 / 8)  # stretched for all that it sees, but not for its windows
    assert local.frequencies[0] == 1


def test_qwen_25_names_a_window_that_it_does_not_use() -> None:
    found = shape(QWEN_25_05B)
    assert {block.window for block in found.blocks} == {None}
    assert (found.layers, found.head_dim, found.qkv_bias, found.tied) == (24, 64, True, True)


def test_phi_2_turns_two_fifths_of_a_head() -> None:
    found = shape(PHI_2)
    assert [len(rotary.frequencies) for rotary in found.rotaries] == [16]
    assert found.parallel
    assert not found.gated


@pytest.mark.parametrize("kinds", [["full_attention"], "full_attention", ["full_attention"] * 25])
def test_kinds_for_another_number_of_layers_are_refused(kinds: Any) -> None:
    with pytest.raises(ModelCorruptError, match="layer_types"):
        shape({**QWEN_25_05B, "layer_types": kinds})


@pytest.mark.parametrize("turns", [[1, 0], "all"])
def test_smollm_3_says_for_every_layer_whether_it_knows_positions(turns: Any) -> None:
    found = shape(SMOLLM_3)
    assert [layer for layer, block in enumerate(found.blocks) if block.rotary is None] == list(range(3, 36, 4))
    assert {block.window for block in found.blocks} == {None}
    with pytest.raises(ModelCorruptError, match="no_rope_layers"):
        shape({**SMOLLM_3, "no_rope_layers": turns})


def test_a_window_that_no_size_is_given_for_is_refused() -> None:
    with pytest.raises(ModelCorruptError, match="sliding_window"):
        shape({**QWEN_25_05B, "layer_types": ["sliding_attention"] * 24, "sliding_window": None})


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"head_dim": 20}, "heads of 20"), ({"partial_rotary_factor": 0.3}, "turn 24"), ({"head_dim": 24}, "turn 24")],
)
def test_sizes_that_the_attention_operator_does_not_take_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=named):
        shape({**PHI_2, "partial_rotary_factor": 1.0, **changes})
