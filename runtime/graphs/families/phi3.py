"""Phi 3 and Phi 4 mini: Llama with packed projections, and positions that turn part of a head only."""

from __future__ import annotations

from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import LLAMA_NAMES, Family, blocks, head_dim, llama_like
from runtime.graphs.families.rope import rope


def _shape(config: ModelConfig) -> DecoderShape:
    window = config.size("sliding_window") if config.get("sliding_window") else None
    return llama_like(config, blocks(config, rope(config, head_dim(config)), window=window))


FAMILY = Family(("phi3",), _shape, {**LLAMA_NAMES, "qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)})
