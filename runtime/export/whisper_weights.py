"""The weights of a Whisper that transformers saved, under the names that the graphs read: CTranslate2's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.graphs.families.config import ModelConfig
from runtime.weights.tensors import CheckedTensors, Tensors

Floats = NDArray[np.float32]

_NORMS = {"self_attention/layer_norm": "self_attn_layer_norm", "ffn/layer_norm": "final_layer_norm"}
_LINEARS = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
_CROSS_NORMS = {"attention/layer_norm": "encoder_attn_layer_norm"}
_CROSS_LINEARS = {
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
}


def whisper_weights(tensors: Tensors, config: ModelConfig) -> dict[str, Floats]:
    """All weights by CTranslate2's names, float32.

    Raises:
        ModelUnsupportedError: A feature that no published Whisper has.
        ModelCorruptError: A tensor that is missing, of another shape, unknown, or not finite.
    """
    config.refuse("scale_embedding")
    heads = config.size("encoder_attention_heads")
    if config.size("decoder_attention_heads") != heads or config.size("d_model") % heads:
        raise ModelCorruptError("config.json gives encoder and decoder other heads, or a width that they cannot share")
    read = CheckedTensors(tensors)
    weights = {"encoder/num_heads": np.array(heads, np.float32), **dict(_outside(read, config))}
    for half in ("encoder", "decoder"):
        for layer in range(config.size(f"{half}_layers")):
            weights |= dict(_layer(read, config, half, layer))
    read.check_nothing_left("proj_out.weight")
    return weights


def _outside(read: CheckedTensors, config: ModelConfig) -> Iterator[tuple[str, Floats]]:
    hidden, mels = config.size("d_model"), config.size("num_mel_bins")
    for name, inputs in (("conv1", mels), ("conv2", hidden)):
        yield f"encoder/{name}/weight", read(f"model.encoder.{name}.weight", hidden, inputs, 3)
        yield f"encoder/{name}/bias", read(f"model.encoder.{name}.bias", hidden)
    for half, size in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        places = read(f"model.{half}.embed_positions.weight", config.size(size), hidden)
        yield f"{half}/position_encodings/encodings", places
        yield from _norm(read, f"{half}/layer_norm", f"model.{half}.layer_norm", hidden)
    yield "decoder/embeddings/weight", read("model.decoder.embed_tokens.weight", config.size("vocab_size"), hidden)


def _layer(read: CheckedTensors, config: ModelConfig, half: str, layer: int) -> Iterator[tuple[str, Floats]]:
    hidden, wide = config.size("d_model"), config.size(f"{half}_ffn_dim")
    ours, theirs = f"{half}/layer_{layer}", f"model.{half}.layers.{layer}"
    crosses = half == "decoder"
    for name, module in (_NORMS | (_CROSS_NORMS if crosses else {})).items():
        yield from _norm(read, f"{ours}/{name}", f"{theirs}.{module}", hidden)
    for name, modules in (_LINEARS | (_CROSS_LINEARS if crosses else {})).items():
        rows, columns = {"fc1": (wide, hidden), "fc2": (hidden, wide)}.get(modules[0], (hidden, hidden))
        places = [f"{theirs}.{module}" for module in modules]
        yield f"{ours}/{name}/weight", np.concatenate([read(f"{place}.weight", rows, columns) for place in places])
        biases = [_bias(read, place, rows) for place in places]
        yield f"{ours}/{name}/bias", np.concatenate(biases)


def _norm(read: CheckedTensors, ours: str, theirs: str, width: int) -> Iterator[tuple[str, Floats]]:
    yield f"{ours}/gamma", read(f"{theirs}.weight", width)
    yield f"{ours}/beta", read(f"{theirs}.bias", width)


def _bias(read: CheckedTensors, place: str, rows: int) -> Floats:
    """Keys have none: it would not change where anything looks."""
    return np.zeros(rows, np.float32) if place.endswith("k_proj") else read(f"{place}.bias", rows)
