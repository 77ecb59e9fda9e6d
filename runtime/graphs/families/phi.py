"""Phi 1, 1.5 and 2: attention and feed-forward side by side, LayerNorms, biases everywhere, no gate."""

from __future__ import annotations

from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import ACTIVATIONS, LLAMA_NAMES, Family, blocks, head_dim, llama_like
from runtime.graphs.families.rope import rope

_TURNED = 0.5


def _shape(config: ModelConfig) -> DecoderShape:
    config.refuse("qk_layernorm")
    turned = config.having(partial_rotary_factor=config.number("partial_rotary_factor", _TURNED))
    return llama_like(
        config,
        blocks(config, rope(turned, head_dim(config))),
        activation=config.choice("hidden_act", ACTIVATIONS, "gelu_new"),
        norm_epsilon=config.number("layer_norm_eps", 1e-5),
        layer_norms=True,
        gated=False,
        parallel=True,
        qkv_bias=True,
        out_bias=True,
        feed_forward_bias=True,
        head_bias=True,
    )


FAMILY = Family(
    ("phi",),
    _shape,
    {
        **LLAMA_NAMES,
        "norm": ("final_layernorm",),
        "o": ("self_attn.dense",),
        "gate_up": ("mlp.fc1",),
        "down": ("mlp.fc2",),
    },
)
