"""What a family of decoders is: how its configuration becomes a shape, and what it calls its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.graphs.decoder.shape import Activation, Block, DecoderShape, Rotary
from runtime.graphs.families.config import ModelConfig, chosen
from runtime.graphs.families.rope import trained_context

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}
"""Activations by the names that configurations use."""

LLAMA_NAMES: Mapping[str, tuple[str, ...]] = {
    "embeddings": ("embed_tokens",),
    "norm": ("norm",),
    "attention_norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "q_norm": ("self_attn.q_norm",),
    "k_norm": ("self_attn.k_norm",),
    "o": ("self_attn.o_proj",),
    "feed_forward_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Where each part of `decoder.parts` is stored: in one tensor, or in one for each of its pieces; as Llama has it."""


_WIDEST, _DEEPEST = 4096, 4096
"""Heads and models beyond these are no such thing, but would take all memory before their weights are looked at."""


@dataclass(frozen=True, slots=True)
class Family:
    """Decoders that are built alike.

    Attributes:
        model_types: What their configurations call them.
        shape: Reads a configuration.
        names: Where their weights are stored.
        ignored: Beginnings of tensors that a checkpoint may have beside the decoder's.
    """

    model_types: tuple[str, ...]
    shape: Callable[[ModelConfig], DecoderShape]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: LLAMA_NAMES)
    ignored: tuple[str, ...] = ()


def head_dim(config: ModelConfig) -> int:
    """Width of a head, where it may be left out."""
    return config.size("head_dim", config.size("hidden_size") // config.size("num_attention_heads"), most=_WIDEST)


def layer_count(config: ModelConfig) -> int:
    """How many layers."""
    return config.size("num_hidden_layers", most=_DEEPEST)


def blocks(config: ModelConfig, rotary: Rotary, *, window: int | None = None) -> tuple[Block, ...]:
    """The layers of a model whose layers are all alike."""
    return (Block(rotary, window),) * layer_count(config)


def windows(config: ModelConfig) -> tuple[int | None, ...]:
    """The window of each layer, of families that say for each layer whether it has one.

    Raises:
        ModelUnsupportedError: A kind of layer that is not known.
        ModelCorruptError: Kinds for another number of layers.
    """
    layers = layer_count(config)
    kinds = config.get("layer_types", ["full_attention"] * layers)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.wrong("layer_types", f"a list of {layers} kinds")
    known: dict[str, int | None] = {"full_attention": None, "sliding_attention": None}
    if "sliding_attention" in kinds:
        known["sliding_attention"] = config.size("sliding_window")
    return tuple(chosen("layer_types", kind, known) for kind in kinds)


def llama_like(config: ModelConfig, layers: tuple[Block, ...], **choices: Any) -> DecoderShape:
    """A shape whose sizes stand under the names that most families use.

    Args:
        config: The configuration.
        layers: The layers.
        choices: What else the shape is, or is instead.

    Raises:
        ModelUnsupportedError: Weights that are quantised already, or an activation that is not known.
        ModelCorruptError: Values that are missing or make no sense.
    """
    config.refuse("quantization_config")
    heads = config.size("num_attention_heads")
    sizes: dict[str, Any] = {
        "hidden": config.size("hidden_size"),
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", heads),
        "head_dim": head_dim(config),
        "feed_forward": config.size("intermediate_size"),
        "vocabulary": config.size("vocab_size"),
        "context": trained_context(config),
        "longest": config.size("max_position_embeddings"),
        "blocks": layers,
        "tied": config.flag("tie_word_embeddings"),
    }
    if not {"norm_epsilon", "layer_norms"} & choices.keys():
        sizes["norm_epsilon"] = config.number("rms_norm_eps", 1e-6)
    if "activation" not in choices:
        sizes["activation"] = config.choice("hidden_act", ACTIVATIONS, "silu")
    return DecoderShape(**sizes, **choices)
