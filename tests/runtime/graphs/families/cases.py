"""A small model of every family, with every feature that its configurations turn on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel

from tests.runtime import reference

VOCABULARY, CONTEXT, WINDOW = 320, 160, 12

_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 40}
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7], "long_factor": [2.0, 3, 4, 5, 6, 7, 8, 9],
    "original_max_position_embeddings": CONTEXT,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model to compare with.

    Attributes:
        name: What the test calls it.
        kind: `Llama` for `LlamaConfig` and `LlamaForCausalLM`.
        changes: What its configuration has beside the common sizes.
        offset: What its norms add to their weights.
        table: Size of its embeddings.
    """

    name: str
    kind: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    offset: float = 0.0
    table: float = 1.0

    def model(self) -> PreTrainedModel:
        """The model, with random weights."""
        name = {"Gemma3": "Gemma3TextConfig"}.get(self.kind, f"{self.kind}Config")
        config: PretrainedConfig = getattr(transformers, name)(**{**_SIZES, **self.changes})
        model: PreTrainedModel = getattr(transformers, f"{self.kind}ForCausalLM")(config)
        reference.randomise(model, offset=self.offset, table=self.table)
        model.train(False)
        return model


CASES = (
    Case("llama", "Llama", {"rope_parameters": _LLAMA3, "head_dim": 32}),
    Case("llama with biases and a tied head", "Llama", {
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"}, table=0.3),
    Case("mistral", "Mistral", {"sliding_window": WINDOW}),
    Case("qwen2", "Qwen2", {"rope_parameters": _YARN}),
    Case("qwen2 with windows from the second layer", "Qwen2", {
        "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
    Case("gemma2", "Gemma2", {
        "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW,
        "attn_logit_softcapping": 4.0, "final_logit_softcapping": 2.0}, offset=1.0, table=0.06),
    Case("gemma3", "Gemma3", {
        "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, offset=1.0, table=0.03),
    Case("phi", "Phi", {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "head_dim": 32,
                        "hidden_size": 128}),
    Case("phi3", "Phi3", {"rope_parameters": _LONGROPE, "head_dim": 32, "hidden_size": 128,
                          "original_max_position_embeddings": CONTEXT}),
    Case("smollm3", "SmolLM3", {"no_rope_layers": [1, 0, 1], "tie_word_embeddings": False}),
    Case("smollm3 with windows", "SmolLM3", {
        "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": WINDOW}, table=0.3),
    Case("phi3 with windows", "Phi3", {"sliding_window": WINDOW}),
)  # fmt: skip
