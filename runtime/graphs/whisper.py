"""Whisper as two ONNX graphs: an encoder that also makes the cross-attention keys and values, and a decoder.

Weights go by CTranslate2's names: `linear_0` of self-attention is q, k and v in one; in cross-attention
`linear_0` is q, `linear_1` is k and v in one, `linear_2` is the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.ops import MICROSOFT, Graph
from runtime.graphs.quantize import quantize_blocks

Weights = Mapping[str, NDArray[np.float32]]

_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class WhisperDims:
    """Sizes of a model.

    Attributes:
        heads: Attention heads, the same in both halves.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        mels: Mel bands.
        frames: Positions of the encoder; it takes twice as many mel frames.
        context: The most tokens of the decoder.
        hidden: Width.
        vocabulary: Tokens.
    """

    heads: int
    encoder_layers: int
    decoder_layers: int
    mels: int
    frames: int
    context: int
    hidden: int
    vocabulary: int

    @classmethod
    def of(cls, weights: Weights) -> WhisperDims:
        """The sizes that the weights have."""
        hidden, mels, _ = weights["encoder/conv1/weight"].shape
        return cls(
            heads=int(weights["encoder/num_heads"]),
            encoder_layers=_layers(weights, "encoder"),
            decoder_layers=_layers(weights, "decoder"),
            mels=mels,
            frames=len(weights["encoder/position_encodings/encodings"]),
            context=len(weights["decoder/position_encodings/encodings"]),
            hidden=hidden,
            vocabulary=len(weights["decoder/embeddings/weight"]),
        )


def encoder_graph(weights: Weights, dims: WhisperDims, *, quantised: bool = False) -> Graph:
    """Mel frames to the keys and values that every decoder layer looks at.

    Input `mel`: float32 (batch, mel, 2 × frame), of any length up to the model's.
    Outputs `cross.key.<i>` and `cross.value.<i>`: float32 (batch, head, frame, dim of a head).
    """
    half = _Half(Graph("whisper_encoder"), weights, dims, quantised)
    graph = half.graph
    mel = graph.input("mel", np.float32, ("batch", dims.mels, "mel_frame"))
    value = half.convolution(mel, "encoder/conv1", stride=1)
    value = half.convolution(value, "encoder/conv2", stride=2)
    value = graph.node("Transpose", [value], perm=[0, 2, 1])
    value = graph.node("Add", [value, half.places(value)])
    normed, residual = half.first_norm(value, "encoder/layer_0/self_attention/layer_norm"), value
    for index in range(dims.encoder_layers):
        name = f"encoder/layer_{index}"
        attended = half.self_attention(normed, f"{name}/self_attention")
        normed, residual = half.norm(attended, residual, f"{name}/self_attention/linear_1", f"{name}/ffn/layer_norm")
        last = index + 1 == dims.encoder_layers
        following = "encoder/layer_norm" if last else f"encoder/layer_{index + 1}/self_attention/layer_norm"
        normed, residual = half.norm(half.feed_forward(normed, name), residual, f"{name}/ffn/linear_1", following)
    for index in range(dims.decoder_layers):
        half.cross_memory(normed, index)
    return graph


def decoder_graph(weights: Weights, dims: WhisperDims, *, quantised: bool = True) -> Graph:
    """Tokens to the logits of the next one, over a cache that is written in place.

    Inputs: `tokens` and `positions` int64 (batch, step); `last` int32 (batch,), index of the last valid cache
    entry after this step; `total` int32 (), its largest value plus one; `past.key.<i>`, `past.value.<i>`
    float32 (batch, head, context, dim of a head); `cross.key.<i>`, `cross.value.<i>` as the encoder makes them.
    Outputs: `logits` float32 (batch, vocabulary) of the last step; `present.key.<i>`, `present.value.<i>`, to be
    bound to the memory of the inputs.
    """
    half = _Half(Graph("whisper_decoder"), weights, dims, quantised)
    graph = half.graph
    tokens = graph.input("tokens", np.int64, ("batch", "step"))
    positions = graph.input("positions", np.int64, ("batch", "step"))
    lengths = graph.input("last", np.int32, ("batch",)), graph.input("total", np.int32, ())
    places = graph.node("Gather", [half.weight("decoder/position_encodings/encodings"), positions])
    value = graph.node("Add", [half.embedding(tokens), places])
    normed, residual = half.first_norm(value, "decoder/layer_0/self_attention/layer_norm"), value
    for index in range(dims.decoder_layers):
        name = f"decoder/layer_{index}"
        attended = half.cached_attention(normed, f"{name}/self_attention", index, lengths)
        own, cross = f"{name}/self_attention/linear_1", f"{name}/attention"
        normed, residual = half.norm(attended, residual, own, f"{cross}/layer_norm")
        attended = half.cross_attention(normed, cross, index)
        normed, residual = half.norm(attended, residual, f"{cross}/linear_2", f"{name}/ffn/layer_norm")
        last = index + 1 == dims.decoder_layers
        following = "decoder/layer_norm" if last else f"decoder/layer_{index + 1}/self_attention/layer_norm"
        normed, residual = half.norm(half.feed_forward(normed, name), residual, f"{name}/ffn/linear_1", following)
    final = graph.node("Gather", [normed, graph.weight("minus_one", np.array(-1, np.int64))], axis=1)
    logits = half.linear(final, "decoder/embeddings")
    graph.output(logits, "logits", np.float32, ("batch", dims.vocabulary))
    return graph


def _layers(weights: Weights, half: str) -> int:
    names = (name.split("/")[1] for name in weights if name.startswith(f"{half}/layer_"))
    return 1 + max(int(name.removeprefix("layer_")) for name in names if name != "layer_norm")


class _Half:
    """Pieces that both graphs are put together from."""

    def __init__(self, graph: Graph, weights: Weights, dims: WhisperDims, quantised: bool) -> None:
        self.graph, self._weights, self._dims, self._quantised = graph, weights, dims, quantised
        self._head = dims.hidden // dims.heads

    def weight(self, name: str) -> str:
        return self.graph.weight(name, self._weights[name])

    def linear(self, value: str, name: str, rows: slice = slice(None)) -> str:
        """A matrix product without its bias."""
        weight = self._weights[f"{name}/weight"][rows]
        return self.graph.matmul(value, f"{name}/weight", quantize_blocks(weight) if self._quantised else weight)

    def embedding(self, tokens: str) -> str:
        """Rows of the output projection's own weight, made dense again where it is in blocks."""
        name, weight = "decoder/embeddings/weight", self._weights["decoder/embeddings/weight"]
        if not self._quantised:
            return self.graph.node("Gather", [self.graph.weight(f"{name}.rows", weight), tokens])
        blocks = quantize_blocks(weight)
        # The same name as in `linear`: the table is in the file, and in memory, once.
        values = self.graph.node("Gather", [self.graph.weight(name, blocks.values), tokens])
        scales = self.graph.node("Gather", [self.graph.weight(f"{name}.row_scales", blocks.scales[:, :, None]), tokens])
        signed = self.graph.node("Cast", [values], to=1)
        middle = self.graph.weight("middle", np.array(128, np.float32))
        dense = self.graph.node("Mul", [self.graph.node("Sub", [signed, middle]), scales])
        return self.graph.node("Reshape", [dense, self.graph.constant(0, 0, self._dims.hidden)])

    def places(self, value: str) -> str:
        """Position encodings for as many frames as there are."""
        frames = self.graph.node("Shape", [value], start=1, end=2)
        table = self.weight("encoder/position_encodings/encodings")
        return self.graph.node("Slice", [table, self.graph.constant(0), frames, self.graph.constant(0)])

    def convolution(self, value: str, name: str, stride: int) -> str:
        value = self.graph.node(
            "Conv",
            [value, self.weight(f"{name}/weight"), self.weight(f"{name}/bias")],
            kernel_shape=[3],
            pads=[1, 1],
            strides=[stride],
        )
        return self.graph.node("Gelu", [value])

    def first_norm(self, value: str, name: str) -> str:
        gamma, beta = self.weight(f"{name}/gamma"), self.weight(f"{name}/beta")
        return self.graph.node("LayerNormalization", [value, gamma, beta], axis=-1, epsilon=_EPSILON)

    def norm(self, value: str, residual: str, bias_of: str, name: str) -> tuple[str, str]:
        """Add the bias of the product that made `value` and the residual; returns the normed sum and the sum."""
        inputs = [value, residual, *(self.weight(one) for one in (f"{name}/gamma", f"{name}/beta", f"{bias_of}/bias"))]
        outputs = [f"{name}.normed", "", "", f"{name}.sum"]
        normed, _, _, total = self.graph.nodes(
            "SkipLayerNormalization", inputs, outputs, domain=MICROSOFT, epsilon=_EPSILON
        )
        return normed, total

    def feed_forward(self, value: str, name: str) -> str:
        """Up, GELU, down; the last bias is added by the norm that follows."""
        up = self.linear(value, f"{name}/ffn/linear_0")
        bias = self.weight(f"{name}/ffn/linear_0/bias")
        return self.linear(self.graph.node("BiasGelu", [up, bias], domain=MICROSOFT), f"{name}/ffn/linear_1")

    def self_attention(self, value: str, name: str) -> str:
        packed = self.linear(value, f"{name}/linear_0")
        query, key, each = self.graph.nodes("Split", [packed], 3, axis=-1, num_outputs=3)
        attended = self.graph.node(
            "MultiHeadAttention",
            [query, key, each, self.weight(f"{name}/linear_0/bias")],
            domain=MICROSOFT,
            num_heads=self._dims.heads,
        )
        return self.linear(attended, f"{name}/linear_1")

    def cached_attention(self, value: str, name: str, index: int, lengths: tuple[str, str]) -> str:
        shape = ("batch", self._dims.heads, self._dims.context, self._head)
        past = [self.graph.input(f"past.{kind}.{index}", np.float32, shape) for kind in ("key", "value")]
        present = [f"present.{kind}.{index}" for kind in ("key", "value")]
        packed = self.graph.node("Add", [self.linear(value, f"{name}/linear_0"), self.weight(f"{name}/linear_0/bias")])
        attended, *_ = self.graph.nodes(
            "GroupQueryAttention",
            [packed, "", "", *past, *lengths],
            [f"{name}.attended", *present],
            domain=MICROSOFT,
            num_heads=self._dims.heads,
            kv_num_heads=self._dims.heads,
        )
        for output in present:
            self.graph.declare_output(output, np.float32, shape)
        return self.linear(attended, f"{name}/linear_1")

    def cross_attention(self, value: str, name: str, index: int) -> str:
        shape = ("batch", self._dims.heads, "frame", self._head)
        memory = [self.graph.input(f"cross.{kind}.{index}", np.float32, shape) for kind in ("key", "value")]
        query = self.graph.node("Add", [self.linear(value, f"{name}/linear_0"), self.weight(f"{name}/linear_0/bias")])
        attended = self.graph.node("MultiHeadAttention", [query, *memory], domain=MICROSOFT, num_heads=self._dims.heads)
        return self.linear(attended, f"{name}/linear_2")

    def cross_memory(self, value: str, index: int) -> None:
        """Declare the keys and values of one decoder layer as outputs of the encoder."""
        name = f"decoder/layer_{index}/attention/linear_1"
        packed = self.graph.node("Add", [self.linear(value, name), self.weight(f"{name}/bias")])
        for kind, part in zip(
            ("key", "value"), self.graph.nodes("Split", [packed], 2, axis=-1, num_outputs=2), strict=True
        ):
            split = self.graph.node("Reshape", [part, self.graph.constant(0, 0, self._dims.heads, self._head)])
            shape = ("batch", self._dims.heads, "frame", self._head)
            headed = self.graph.node("Transpose", [split], perm=[0, 2, 1, 3])
            self.graph.output(headed, f"cross.{kind}.{index}", np.float32, shape)
