"""The audio tower of Qwen2-Audio and Qwen2.5-Omni: Whisper's encoder, with pairs of what it gives averaged into tokens.

Chunks of all clips are padded for the two convolutions only; behind them their rows lie in one row, and attention looks
within a chunk (`runs`).

Source: Chu et al., Qwen2-Audio (2024), section 2; Xu et al., Qwen2.5-Omni (2025), section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.graphs.encoders.transformer import Floats, Tower, TowerShape, linear
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import MICROSOFT, Graph
from runtime.weights.tensors import CheckedTensors

_MOST = 65_536
_EPSILON = 1e-5
_NAMES = {
    "encoder.layers.": "layers.",
    ".layer_norm1": ".self_attn_layer_norm",
    ".layer_norm2": ".final_layer_norm",
    ".mlp.": ".",
}
"""What the tower calls its weights, and what they are stored as."""


@dataclass(frozen=True, slots=True)
class HearingShape:
    """Sizes of a tower.

    Attributes:
        tower: Of its layers.
        mels: Mel bands.
        positions: Rows behind the convolutions that it knows the places of.
    """

    tower: TowerShape
    mels: int
    positions: int

    @classmethod
    def read(cls, config: ModelConfig) -> HearingShape:
        """Read an `audio_config`.

        Raises:
            ModelUnsupportedError: An activation or a scale of the embeddings that is not known.
            ModelCorruptError: Sizes that are missing or do not fit together.
        """
        config.refuse("scale_embedding")
        named = config.having(
            hidden_size=config.get("d_model", 1280),
            num_attention_heads=config.get("encoder_attention_heads", 20),
            intermediate_size=config.get("encoder_ffn_dim", 5120),
            num_hidden_layers=config.get("encoder_layers", 32),
            hidden_act=config.get("activation_function", "gelu"),
            layer_norm_eps=_EPSILON,
        )
        return cls(
            TowerShape.read(named),
            config.size("num_mel_bins", 128, most=_MOST),
            config.size("max_source_positions", 1500, most=_MOST),
        )


def sinusoids(rows: int, width: int) -> Floats:
    """Places that need no training, float32 `(row, width)`.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.5, sines and cosines apart as in Whisper.
    """
    half = width // 2
    frequencies = np.exp(-np.float32(np.log(10_000) / (half - 1)) * np.arange(half, dtype=np.float32))
    angles = np.arange(rows, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class HearingNames:
    """What differs from model to model.

    Attributes:
        norm: The norm behind the pairs.
        projection: From there to the decoder's width.
        places: The places of the rows, float32 `(position, hidden)`.
    """

    norm: str
    projection: str
    places: Floats


def hearing(shape: HearingShape, read: CheckedTensors, names: HearingNames, out: int) -> Graph:
    """Build the graph.

    Inputs: `mel` float32 (chunk, frame, mel); `lengths` int64 (chunk,), frames of each that are not padding; `rows`
    int64 (row,), which of the (chunk · frame / 2) rows behind the convolutions are kept, in the order of `runs` int64
    (run, 3), see `attention_over_runs`; `pairs` int64 (token, 2), the rows that become each token.
    Output: `embeddings` float32 (token, out).

    Args:
        shape: Sizes.
        read: Gives the weights, by the checkpoint's names under `audio.`.
        names: What differs from model to model.
        out: Width of the decoder's embeddings.
    """
    graph, hidden = Graph("hearing"), shape.tower.hidden
    value = _convolved(graph, shape, read)
    size = graph.node("Shape", [value], start=1, end=2)
    ends = [graph.constant(0), size, graph.constant(0)]
    value = graph.node("Add", [value, graph.node("Slice", [graph.weight("places", names.places), *ends])])
    value = graph.node("Reshape", [value, graph.constant(-1, hidden)])
    rows = graph.input("rows", np.int64, ("row",))
    value = graph.node("Unsqueeze", [graph.node("Gather", [value, rows]), graph.constant(0)])
    runs = graph.input("runs", np.int64, ("run", 3))
    value = _Layers(graph, read, shape.tower, "audio.").layers(value, norm=None, runs=runs)
    pairs = graph.input("pairs", np.int64, ("token", 2))
    value = graph.node("Gather", [graph.node("Squeeze", [value, graph.constant(0)]), pairs])
    value = graph.node("ReduceMean", [value, graph.constant(1)], keepdims=0)
    vectors = [
        graph.weight(f"{names.norm}.{part}", read(f"{names.norm}.{part}", hidden)) for part in ("weight", "bias")
    ]
    value = graph.node("LayerNormalization", [value, *vectors], axis=-1, epsilon=_EPSILON)
    value = linear(graph, read, value, names.projection, (out, hidden), bias=True)
    graph.output(value, "embeddings", np.float32, ("token", out))
    return graph


def _convolved(graph: Graph, shape: HearingShape, read: CheckedTensors) -> str:
    """Rows of chunks, float32 `(chunk, row, hidden)`: two convolutions, the second one over every other frame."""
    hidden = shape.tower.hidden
    mel = graph.input("mel", np.float32, ("chunk", "frame", shape.mels))
    lengths = graph.input("lengths", np.int64, ("chunk",))
    value = _convolution(graph, read, mel, "audio.conv1", (hidden, shape.mels), 1)
    value = graph.node("Mul", [value, _not_padding(graph, mel, lengths)])
    return _convolution(graph, read, value, "audio.conv2", (hidden, hidden), 2)


def _convolution(graph: Graph, read: CheckedTensors, value: str, name: str, size: tuple[int, int], stride: int) -> str:
    """Three frames wide, with GELU, float32 `(chunk, row, channel)`.

    A product with the three frames beside each other: the operator for convolutions adds up in another order where a
    chunk has another length, and what a clip becomes would depend on the others that run with it.
    """
    channels, wide = size
    around = graph.node("Pad", [value, graph.constant(0, 1, 0, 0, 1, 0)])
    count = graph.node("Shape", [value], start=1, end=2)
    ends = [graph.node("Add", [count, graph.constant(tap)]) for tap in range(3)]
    taps = [
        graph.node("Slice", [around, graph.constant(tap), end, graph.constant(1), graph.constant(stride)])
        for tap, end in enumerate(ends)
    ]
    weight = read(f"{name}.weight", channels, wide, 3).transpose(0, 2, 1).reshape(channels, 3 * wide)
    product = graph.matmul(graph.node("Concat", taps, axis=-1), f"{name}.weight", weight)
    bias = graph.weight(f"{name}.bias", read(f"{name}.bias", channels))
    return graph.node("BiasGelu", [product, bias], domain=MICROSOFT)


def _not_padding(graph: Graph, mel: str, lengths: str) -> str:
    """1 for frames of a chunk and 0 for those behind it, float32 `(chunk, frame, 1)`."""
    ends = [graph.weight(f"frames.{value}", np.array(value, np.int64)) for value in (0, 1)]
    count = graph.node("Squeeze", [graph.node("Shape", [mel], start=1, end=2)])
    frames = graph.node("Unsqueeze", [graph.node("Range", [ends[0], count, ends[1]]), graph.constant(1)])
    inside = graph.node("Less", [frames, graph.node("Unsqueeze", [lengths, graph.constant(1, 2)])])
    return graph.node("Cast", [inside], to=1)


class _Layers(Tower):
    """Whisper's layers: names of their own, and keys without a bias."""

    def _bias(self, name: str, width: int) -> Floats:
        return np.zeros(width, np.float32) if name.endswith(".k_proj") else super()._bias(_stored(name), width)

    def _matrix(self, name: str, rows: int, columns: int) -> Floats:
        return super()._matrix(_stored(name), rows, columns)

    def _vector(self, name: str, width: int) -> str:
        return super()._vector(_stored(name), width)


def _stored(name: str) -> str:
    for ours, stored in _NAMES.items():
        name = name.replace(ours, stored)
    return name
