"""SmolLM 3: Llama, of which every fourth layer knows nothing of positions."""

from __future__ import annotations

from runtime.graphs.decoder.shape import Block, DecoderShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.family import Family, head_dim, layer_count, llama_like, windows
from runtime.graphs.families.rope import rope


def _shape(config: ModelConfig) -> DecoderShape:
    layers = layer_count(config)
    every = config.size("no_rope_layer_interval", 4)
    turns = config.get("no_rope_layers", [int((layer + 1) % every != 0) for layer in range(layers)])
    if not isinstance(turns, list) or len(turns) != layers:
        raise config.wrong("no_rope_layers", f"a list of {layers} numbers")
    if config.get("layer_types") is None and config.flag("use_sliding_window"):
        kinds = ["full_attention" if turning else "sliding_attention" for turning in turns]
        config = config.having(layer_types=kinds)
    rotary, bias = rope(config, head_dim(config)), config.flag("attention_bias")
    return llama_like(
        config.filled(tie_word_embeddings=True),
        tuple(
            Block(rotary if turning else None, window) for turning, window in zip(turns, windows(config), strict=True)
        ),
        qkv_bias=bias,
        out_bias=bias,
        feed_forward_bias=config.flag("mlp_bias"),
    )


FAMILY = Family(("smollm3",), _shape)
