"""Mistral: Llama, in its first version with a window over the last tokens in every layer."""

from __future__ import annotations

from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import Family, blocks, head_dim, llama_like
from runtime.graphs.families.rope import rope


def _shape(config: ModelConfig) -> DecoderShape:
    window = config.size("sliding_window") if config.get("sliding_window") else None
    return llama_like(config, blocks(config, rope(config, head_dim(config)), window=window))


FAMILY = Family(("mistral",), _shape)
