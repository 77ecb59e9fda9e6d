"""Qwen 2, 2.5 and 3: Llama with biases on queries, keys and values (2), or with norms on queries and keys (3).

The text models of Qwen2-VL, 2.5-VL, 2.5-Omni's thinker and 3-VL are these with positions of three axes.
"""

from __future__ import annotations

from runtime.graphs.decoder.shape import Block, DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import Family, head_dim, layer_count, llama_like, windows
from runtime.graphs.families.rope import rope


def _qwen2(config: ModelConfig) -> DecoderShape:
    return llama_like(config, _layers(config), qkv_bias=True)


def _qwen3(config: ModelConfig) -> DecoderShape:
    bias = config.flag("attention_bias")
    return llama_like(config, _layers(config), qk_norm=True, qkv_bias=bias, out_bias=bias)


def _layers(config: ModelConfig) -> tuple[Block, ...]:
    rotary = rope(config, head_dim(config))
    if config.get("layer_types") is None and config.flag("use_sliding_window"):
        whole = min(config.size("max_window_layers"), layer_count(config))
        window = config.size("sliding_window")
        return tuple(Block(rotary, None if layer < whole else window) for layer in range(layer_count(config)))
    return tuple(Block(rotary, window) for window in windows(config))


QWEN2 = Family(("qwen2",), _qwen2)
QWEN_OMNI = ("qwen2_5_omni_text", "qwen2_5_omni_thinker", "qwen2_5_omni")
"""What the thinker is called: its text model, it with its encoders, and all with the talker."""

QWEN2_VL = Family(
    ("qwen2_vl_text", "qwen2_vl", "qwen2_5_vl_text", "qwen2_5_vl", *QWEN_OMNI), _qwen2, ignored=("visual.",)
)
QWEN3_VL = Family(("qwen3_vl_text", "qwen3_vl"), _qwen3, ignored=("visual.",))
QWEN3 = Family(("qwen3",), _qwen3)
