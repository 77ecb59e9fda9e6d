"""The pieces that Whisper's graphs are put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.dynamic import dynamic_matmul
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


def _layers(weights: Weights, half: str) -> int:
    names = (name.split("/")[1] for name in weights if name.startswith(f"{half}/layer_"))
    return 1 + max(int(name.removeprefix("layer_")) for name in names if name != "layer_norm")


class WhisperLayers:
    """Layers of one half; each method adds nodes and returns the name of their value.

    Args:
        graph: Gets the nodes.
        weights: By CTranslate2's names.
        dims: Their sizes.
        quantised: Whether matrices are in 8 bits.
        dynamic: Whether they are multiplied in 8 bits by row (`dynamic_matmul`), else in blocks.
    """

    def __init__(
        self, graph: Graph, weights: Weights, dims: WhisperDims, quantised: bool, *, dynamic: bool = False
    ) -> None:
        self.graph, self._weights, self._dims = graph, weights, dims
        self._quantised, self._dynamic = quantised, dynamic
        self._head = dims.hidden // dims.heads
        self._made: dict[str, str] = {}

    def weight(self, name: str) -> str:
        """A weight as it is."""
        return self.graph.weight(name, self._weights[name])

    def linear(self, value: str, name: str, rows: slice = slice(None)) -> str:
        """A matrix product without its bias."""
        weight = self._weights[f"{name}/weight"][rows]
        if self._quantised and self._dynamic:
            return dynamic_matmul(self.graph, value, f"{name}/weight", weight)
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

    def places(self, count: str, half: str) -> str:
        """The first position encodings of a half; `count` is int64 (1,)."""
        table = self.weight(f"{half}/position_encodings/encodings")
        return self.graph.node("Slice", [table, self.graph.constant(0), count, self.graph.constant(0)])

    def convolution(self, value: str, name: str, stride: int) -> str:
        """Three frames wide, with GELU; (batch, channel, frame)."""
        value = self.graph.node(
            "Conv",
            [value, self.weight(f"{name}/weight"), self.weight(f"{name}/bias")],
            kernel_shape=[3],
            pads=[1, 1],
            strides=[stride],
        )
        return self.graph.node("Gelu", [value])

    def first_norm(self, value: str, name: str) -> str:
        """The norm before the first layer, which has no sum to make."""
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

    def self_attention(self, value: str, name: str, *, causal: bool = False) -> str:
        """Attention over the whole input, or over what came before; its last bias is added by the norm that follows."""
        packed = self.linear(value, f"{name}/linear_0")
        query, key, each = self.graph.nodes("Split", [packed], 3, axis=-1, num_outputs=3)
        attended = self.graph.node(
            "MultiHeadAttention",
            [query, key, each, self.weight(f"{name}/linear_0/bias")],
            domain=MICROSOFT,
            num_heads=self._dims.heads,
            unidirectional=int(causal),
        )
        return self.linear(attended, f"{name}/linear_1")

    def cached_attention(self, value: str, name: str, index: int, lengths: tuple[str, str]) -> str:
        """Attention of new tokens over the cache, which they join in place."""
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
        """Attention over the sound; its last bias is added by the norm that follows."""
        memory = [self._memory(kind, index) for kind in ("key", "value")]
        query = self._query(value, name)
        attended = self.graph.node("MultiHeadAttention", [query, *memory], domain=MICROSOFT, num_heads=self._dims.heads)
        return self.linear(attended, f"{name}/linear_2")

    def scores(self, value: str, name: str, index: int, heads: Sequence[int]) -> list[str]:
        """How well each frame answers each token in some heads of one layer, (batch, 1, token, frame) a head."""
        query, key, found = self._query(value, name), self._memory("key", index), []
        each = self.graph.node("Reshape", [query, self.graph.constant(0, 0, self._dims.heads, self._head)])
        each = self.graph.node("Transpose", [each], perm=[0, 2, 1, 3])
        scale = self.graph.weight("root", np.array(self._head**-0.5, np.float32))
        for head in heads:
            chosen = [self.graph.node("Gather", [one, self.graph.constant(head)], axis=1) for one in (each, key)]
            frames = self.graph.node("Transpose", [chosen[1]], perm=[0, 1, 3, 2])
            found.append(self.graph.node("Mul", [self.graph.node("MatMul", [chosen[0], frames]), scale]))
        return found

    def _query(self, value: str, name: str) -> str:
        key = f"{name}.query"
        if key not in self._made:
            product = self.linear(value, f"{name}/linear_0")
            self._made[key] = self.graph.node("Add", [product, self.weight(f"{name}/linear_0/bias")])
        return self._made[key]

    def _memory(self, kind: str, index: int) -> str:
        """An input of what the encoder made for one decoder layer."""
        name = f"cross.{kind}.{index}"
        if name not in self._made:
            shape = ("batch", self._dims.heads, "frame", self._head)
            self._made[name] = self.graph.input(name, np.float32, shape)
        return self._made[name]

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
