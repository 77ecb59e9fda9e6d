"""The Llama decoder as one ONNX graph on ONNX Runtime's fused operators.

Rows are right-padded: row `r` of a batch has `lengths[r]` tokens in its cache, so no left padding and no mask exist.
GroupQueryAttention appends to a cache buffer of fixed capacity in place, when input and output are bound to the same
memory; it also rotates queries and keys by their positions.

Source: Touvron et al., LLaMA (2023), section 2.2; GroupQueryAttention in ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.ops import MICROSOFT, Graph
from runtime.graphs.quantize import BlockWeight, quantize_blocks

Floats = NDArray[np.float32]
ReadTensor = Callable[[str], Floats]
"""A weight by name, float32, `(out, in)`; names are those of `LlamaWeights`."""


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a decoder.

    Attributes:
        layers: Decoder layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        feed_forward: Width between gate and down projection.
        vocabulary: Rows of the output head.
        context: The most tokens a row may have.
        rope_theta: Base of the rotary frequencies.
        norm_epsilon: Of the RMS norms.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context: int
    rope_theta: float
    norm_epsilon: float


def decoder(shape: LlamaShape, read: ReadTensor, *, quantized: bool = True) -> Graph:
    """Build the graph.

    Inputs: `inputs_embeds` float32 (batch, token, hidden); `lengths` int32 (batch,), tokens of each row including the
    new ones, minus one; `capacity_used` int32 (), the largest of them plus one; `past_key_values.<layer>.key|value`
    float32 (batch, kv_heads, capacity, head_dim); `logits_at` int64 (wanted,), the places among this step's tokens
    whose logits are wanted. Outputs: `logits` float32 (batch, wanted, vocabulary), and `present.<layer>.key|value`, to
    be bound to the same memory as the past.

    Args:
        shape: Sizes.
        read: Gives the weights: `blocks.<layer>.{attention_norm,q,k,v,o,feed_forward_norm,gate,up,down}`,
            `norm` and `head`.
        quantized: 8-bit blocks instead of float32 matrices.
    """
    graph = Graph("llama")
    layers = _Layers(graph, shape, read, quantized)
    stream = graph.input("inputs_embeds", np.float32, ("batch", "token", shape.hidden))
    layers.declare()
    first = layers.norm_weight("blocks.0.attention_norm")
    normed = graph.node("SimplifiedLayerNormalization", [stream, first], axis=-1, epsilon=shape.norm_epsilon)
    for layer in range(shape.layers):
        attended = layers.attention(layer, normed)
        last = layer == shape.layers - 1
        if last:
            # Nothing after the last attention looks at another token: what nobody asked for ends here.
            attended, stream = (graph.node("Gather", [x, "logits_at"], axis=1) for x in (attended, stream))
        projected = layers.project(attended, f"blocks.{layer}.o", read(f"blocks.{layer}.o"))
        normed, stream = layers.add_and_norm(projected, stream, f"blocks.{layer}.feed_forward_norm")
        following = "norm" if last else f"blocks.{layer + 1}.attention_norm"
        normed, stream = layers.add_and_norm(layers.feed_forward(layer, normed), stream, following)
    logits = layers.project(normed, "head", read("head"))
    graph.output(logits, "logits", np.float32, ("batch", "wanted", shape.vocabulary))
    return graph


class _Layers:
    """The parts of the graph, with what they share."""

    def __init__(self, graph: Graph, shape: LlamaShape, read: ReadTensor, quantized: bool) -> None:
        self._graph, self._shape, self._read, self._quantized = graph, shape, read, quantized

    def declare(self) -> None:
        graph, shape = self._graph, self._shape
        graph.input("lengths", np.int32, ("batch",))
        graph.input("capacity_used", np.int32, ())
        graph.input("logits_at", np.int64, ("wanted",))
        cache = ("batch", shape.kv_heads, "capacity", shape.head_dim)
        for layer in range(shape.layers):
            for part in ("key", "value"):
                graph.input(f"past_key_values.{layer}.{part}", np.float32, cache)
                graph.declare_output(f"present.{layer}.{part}", np.float32, cache)
        cosine, sine = rotary_tables(shape.context, shape.head_dim, shape.rope_theta)
        graph.weight("rotary.cosine", cosine)
        graph.weight("rotary.sine", sine)

    def norm_weight(self, name: str) -> str:
        return self._graph.weight(name, self._read(name))

    def project(self, value: str, name: str, weight: Floats) -> str:
        stored: Floats | BlockWeight = quantize_blocks(weight) if self._quantized else weight
        return self._graph.matmul(value, name, stored)

    def attention(self, layer: int, value: str) -> str:
        block, shape = f"blocks.{layer}", self._shape
        packed = np.concatenate([self._read(f"{block}.{part}") for part in "qkv"])
        query = self.project(value, f"{block}.qkv", packed)
        cache = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        attended, *_ = self._graph.nodes(
            "GroupQueryAttention",
            [query, "", "", *cache, "lengths", "capacity_used", "rotary.cosine", "rotary.sine"],
            [f"{block}.attended", f"present.{layer}.key", f"present.{layer}.value"],
            domain=MICROSOFT,
            name=f"{block}.attention",
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return attended

    def feed_forward(self, layer: int, value: str) -> str:
        block, graph = f"blocks.{layer}", self._graph
        packed = np.concatenate([self._read(f"{block}.gate"), self._read(f"{block}.up")])
        both = self.project(value, f"{block}.gate_up", packed)
        gate, up = graph.nodes("Split", [both], 2, axis=-1, num_outputs=2)
        # x * sigmoid(alpha * x) with alpha 1 is SiLU.
        activated = graph.node("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0)
        return self.project(graph.node("Mul", [activated, up]), f"{block}.down", self._read(f"{block}.down"))

    def add_and_norm(self, value: str, stream: str, norm: str) -> tuple[str, str]:
        """The normed sum and the sum itself."""
        normed, total = f"{norm}.normed", f"{norm}.sum"
        self._graph.nodes(
            "SkipSimplifiedLayerNormalization",
            [value, stream, self.norm_weight(norm)],
            [normed, "", "", total],
            domain=MICROSOFT,
            name=f"{norm}.add",
            epsilon=self._shape.norm_epsilon,
        )
        return normed, total


def rotary_tables(context: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """Cosine and sine of every position's angles, float32 `(position, head_dim / 2)` each.

    Source: Su et al., RoFormer (2021), section 3.2.2.
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles: NDArray[Any] = np.outer(np.arange(context, dtype=np.float64), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
