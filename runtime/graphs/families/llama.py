"""Llama: SmolLM2, TinyLlama, Llama 2 and 3, and whatever else calls itself so."""

from __future__ import annotations

from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import Family, blocks, head_dim, llama_like
from runtime.graphs.families.rope import rope


def _shape(config: ModelConfig) -> DecoderShape:
    bias = config.flag("attention_bias")
    return llama_like(
        config,
        blocks(config, rope(config, head_dim(config))),
        qkv_bias=bias,
        out_bias=bias,
        feed_forward_bias=config.flag("mlp_bias"),
    )


FAMILY = Family(("llama",), _shape)
