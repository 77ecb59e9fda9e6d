"""Layers that look both ways: the towers of SigLIP and its kin, norms first, on ONNX Runtime's fused operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.encoders.runs import attention_over_runs
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import MICROSOFT, Graph
from runtime.weights.tensors import CheckedTensors

Floats = NDArray[np.float32]

_MOST = 4096
_BEND = {"gelu": "BiasGelu", "gelu_pytorch_tanh": "FastGelu", "gelu_new": "FastGelu", "gelu_fast": "FastGelu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerShape:
    """Sizes of a tower.

    Attributes:
        hidden: Width.
        heads: Attention heads.
        feed_forward: Width inside the feed-forward.
        layers: How many there are.
        norm_epsilon: Of the layer norms.
        bend: ONNX Runtime's operator for the feed-forward's nonlinearity with the bias before it.
    """

    hidden: int
    heads: int
    feed_forward: int
    layers: int
    norm_epsilon: float
    bend: str

    @classmethod
    def read(cls, config: ModelConfig) -> TowerShape:
        """Read a tower's part of a configuration.

        Raises:
            ModelUnsupportedError: An activation that is not known.
            ModelCorruptError: Sizes that are missing or do not fit together.
        """
        hidden, heads = config.size("hidden_size", most=_MOST * 16), config.size("num_attention_heads", most=_MOST)
        if hidden % heads:
            raise config.wrong("num_attention_heads", f"a number that divides hidden_size {hidden}")
        return cls(
            hidden=hidden,
            heads=heads,
            feed_forward=config.size("intermediate_size", most=_MOST * 64),
            layers=config.size("num_hidden_layers", most=_MOST),
            norm_epsilon=config.number("layer_norm_eps", 1e-6),
            bend=config.choice("hidden_act", _BEND, "gelu_pytorch_tanh"),
        )


class Tower:
    """Adds layers to a graph; values go in and come out by name.

    Args:
        graph: Gets the nodes.
        read: Gives the weights by SigLIP's names.
        shape: Sizes.
        prefix: What stands before every name.
    """

    def __init__(self, graph: Graph, read: CheckedTensors, shape: TowerShape, prefix: str) -> None:
        self.graph, self.shape = graph, shape
        self._read, self._prefix = read, prefix

    def layers(self, stream: str, *, count: int | None = None, norm: str | None, runs: str = "") -> str:
        """All layers.

        Args:
            stream: float32 `(batch, token, hidden)`.
            count: How many of the first layers; None: all.
            norm: The norm behind the last one; None: what the last one adds up to.
            runs: Sequences that lie behind each other in a batch of one, see `attention_over_runs`; empty: each row of
                the batch is one.
        """
        count = self.shape.layers if count is None else count
        if not count:
            return stream
        normed = self._first_norm(stream, "encoder.layers.0.layer_norm1")
        for layer in range(count):
            name = f"encoder.layers.{layer}"
            following = f"encoder.layers.{layer + 1}.layer_norm1" if layer + 1 < count else norm
            attended = self._attention(normed, f"{name}.self_attn", runs)
            normed, stream = self._added(attended, stream, f"{name}.self_attn.out_proj", f"{name}.layer_norm2")
            fed = self._feed_forward(normed, f"{name}.mlp")
            if following is None:
                summed = self.graph.node("Add", [fed, self._vector(f"{name}.mlp.fc2.bias", self.shape.hidden)])
                return self.graph.node("Add", [summed, stream])
            normed, stream = self._added(fed, stream, f"{name}.mlp.fc2", following)
        return normed

    def _attention(self, value: str, name: str, runs: str) -> str:
        """Heads and their output projection, whose bias the sum behind it adds."""
        hidden, graph = self.shape.hidden, self.graph
        parts = [f"{name}.{part}_proj" for part in ("q", "k", "v")]
        weight = np.concatenate([self._matrix(f"{part}.weight", hidden, hidden) for part in parts])
        bias = np.concatenate([self._bias(part, hidden) for part in parts])
        packed = graph.matmul(value, f"{self._prefix}{name}.qkv", weight)
        added, heads = graph.weight(f"{self._prefix}{name}.qkv.bias", bias), self.shape.heads
        if runs:
            packed = graph.node("Add", [packed, added])
        query, key, each = graph.nodes("Split", [packed], 3, axis=-1, num_outputs=3)
        if runs:
            label = f"{self._prefix}{name}"
            attended = attention_over_runs(graph, (query, key, each), runs, heads=heads, hidden=hidden, name=label)
        else:
            inputs = [query, key, each, added]
            attended = graph.node("MultiHeadAttention", inputs, domain=MICROSOFT, num_heads=heads)
        return self._linear(attended, f"{name}.out_proj", hidden, hidden)

    def _feed_forward(self, value: str, name: str) -> str:
        wide, hidden = self.shape.feed_forward, self.shape.hidden
        up = self._linear(value, f"{name}.fc1", wide, hidden)
        bent = self.graph.node(self.shape.bend, [up, self._vector(f"{name}.fc1.bias", wide)], domain=MICROSOFT)
        return self._linear(bent, f"{name}.fc2", hidden, wide)

    def _first_norm(self, value: str, name: str) -> str:
        inputs = [value, *(self._vector(f"{name}.{part}", self.shape.hidden) for part in ("weight", "bias"))]
        return self.graph.node("LayerNormalization", inputs, axis=-1, epsilon=self.shape.norm_epsilon)

    def _added(self, value: str, stream: str, bias_of: str, name: str) -> tuple[str, str]:
        """The normed sum of a value, its bias and the stream, and the sum itself."""
        vectors = (f"{name}.weight", f"{name}.bias", f"{bias_of}.bias")
        normed, total = f"{self._prefix}{name}.normed", f"{self._prefix}{name}.sum"
        self.graph.nodes(
            "SkipLayerNormalization",
            [value, stream, *(self._vector(vector, self.shape.hidden) for vector in vectors)],
            [normed, "", "", total],
            domain=MICROSOFT,
            epsilon=self.shape.norm_epsilon,
        )
        return normed, total

    def _linear(self, value: str, name: str, rows: int, columns: int) -> str:
        return self.graph.matmul(value, f"{self._prefix}{name}.weight", self._matrix(f"{name}.weight", rows, columns))

    def _matrix(self, name: str, rows: int, columns: int) -> Floats:
        return self._read(f"{self._prefix}{name}", rows, columns)

    def _bias(self, name: str, width: int) -> Floats:
        """Of queries, keys or values; a tower may have none of some."""
        return self._read(f"{self._prefix}{name}.bias", width)

    def _vector(self, name: str, width: int) -> str:
        return self.graph.weight(f"{self._prefix}{name}", self._read(f"{self._prefix}{name}", width))


def linear(graph: Graph, read: CheckedTensors, value: str, name: str, size: tuple[int, int], *, bias: bool) -> str:
    """A projection.

    Args:
        graph: Gets the nodes.
        read: Gives the weights.
        value: float32 `(batch, token, in)`.
        name: Of the weights, without `.weight`.
        size: `(out, in)`.
        bias: Whether it has one.
    """
    product = graph.matmul(value, f"{name}.weight", read(f"{name}.weight", *size))
    return (
        graph.node("Add", [product, graph.weight(f"{name}.bias", read(f"{name}.bias", size[0]))]) if bias else product
    )
