"""Gemma 2 and Gemma 3's text model: windows in most layers, and norms before and after each half of a layer."""

from __future__ import annotations

from typing import Any

from runtime.graphs.decoder.shape import Block, DecoderShape, Rotary
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import ACTIVATIONS, LLAMA_NAMES, Family, head_dim, layer_count, llama_like, windows
from runtime.graphs.families.rope import rope, rope_of

_THETAS = {"full_attention": 1_000_000.0, "sliding_attention": 10_000.0}
_EMPTY = ModelConfig({})

# What configurations of the models with vision leave out.
_GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}


def _gemma2(config: ModelConfig) -> DecoderShape:
    config = config.filled(sliding_window_pattern=2)
    rotary = rope(config, head_dim(config))
    layers = tuple(Block(rotary, window) for window in windows(_with_kinds(config)))
    return _shape(config, layers, attention_softcap=_limit(config, "attn_logit_softcapping"))


def _gemma3(config: ModelConfig) -> DecoderShape:
    config.refuse("use_bidirectional_attention", "attn_logit_softcapping")
    config = config.filled(**_GEMMA3)
    whole, local = (_rotary(config, kind) for kind in _THETAS)
    seen = windows(_with_kinds(config))
    return _shape(config, tuple(Block(whole if window is None else local, window) for window in seen), qk_norm=True)


def _shape(config: ModelConfig, layers: tuple[Block, ...], **choices: Any) -> DecoderShape:
    bias = config.flag("attention_bias")
    return llama_like(
        config.filled(tie_word_embeddings=True),
        layers,
        activation=config.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh"),
        norm_offset=1.0,
        post_norms=True,
        qkv_bias=bias,
        out_bias=bias,
        attention_scale=config.number("query_pre_attn_scalar", head_dim(config)) ** -0.5,
        logit_softcap=_limit(config, "final_logit_softcapping"),
        embedding_scale=config.size("hidden_size") ** 0.5,
        **choices,
    )


def _limit(config: ModelConfig, name: str) -> float:
    return config.number(name) if config.get(name) is not None else 0.0


def _with_kinds(config: ModelConfig) -> ModelConfig:
    """The kind of each layer spelled out: older configurations say only that every so-manyth sees all."""
    every = config.size("sliding_window_pattern", 6)
    kinds = ["sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(layer_count(config))]
    return config.filled(layer_types=kinds)


def _rotary(config: ModelConfig, kind: str) -> Rotary:
    """Newer configurations have positions for each kind of layer, older ones two bases and a scaling for the full."""
    width = head_dim(config)
    given = config.inner("rope_parameters")
    if given is not None:
        return rope_of(config, given.inner(kind) or _EMPTY, width, default_theta=_THETAS[kind])
    if kind == "sliding_attention":
        return rope_of(_EMPTY, _EMPTY, width, default_theta=config.number("rope_local_base_freq", _THETAS[kind]))
    return rope_of(config, config.inner("rope_scaling") or _EMPTY, width, default_theta=_THETAS[kind])


_NAMES = {
    **LLAMA_NAMES,
    "post_attention_norm": ("post_attention_layernorm",),
    "feed_forward_norm": ("pre_feedforward_layernorm",),
    "post_feed_forward_norm": ("post_feedforward_layernorm",),
}
GEMMA2 = Family(("gemma2",), _gemma2, _NAMES)
GEMMA3 = Family(("gemma3_text", "gemma3"), _gemma3, _NAMES, ignored=("vision_tower.", "multi_modal_projector."))
