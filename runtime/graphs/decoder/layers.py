"""The pieces that a decoder is put together from: projections, norms, the feed-forward."""

from __future__ import annotations

from runtime.graphs.decoder.shape import Activation, DecoderShape
from runtime.graphs.decoder.weights import ReadTensor, StoreMatrix
from runtime.graphs.ops import MICROSOFT, Graph


class Layers:
    """Adds pieces to a graph; values go in and come out by name.

    Args:
        graph: The graph.
        shape: Sizes and choices.
        read: Gives the weights.
        store: How matrices are kept.
    """

    def __init__(self, graph: Graph, shape: DecoderShape, read: ReadTensor, store: StoreMatrix) -> None:
        self.graph, self.shape = graph, shape
        self._read, self._store = read, store

    def linear(self, value: str, name: str, *, bias: bool) -> str:
        """A projection."""
        product = self.graph.matmul(value, name, self._store(name, self._read(name)))
        return self.graph.node("Add", [product, self.weight(f"{name}.bias")]) if bias else product

    def weight(self, name: str) -> str:
        """A vector of the model as a constant."""
        return self.graph.weight(name, self._read(name))

    def norm(self, value: str, name: str) -> str:
        """The norm over the last axis."""
        layered = self.shape.layer_norms
        return self.graph.node(
            "LayerNormalization" if layered else "SimplifiedLayerNormalization",
            [value, self.weight(name), *([self.weight(f"{name}.bias")] if layered else [])],
            name=f"{name}.alone",
            axis=-1,
            epsilon=self.shape.norm_epsilon,
        )

    def add_and_norm(self, value: str, stream: str, name: str) -> tuple[str, str]:
        """The normed sum and the sum itself."""
        normed, total = f"{name}.normed", f"{name}.sum"
        layered = self.shape.layer_norms
        self.graph.nodes(
            "SkipLayerNormalization" if layered else "SkipSimplifiedLayerNormalization",
            [value, stream, self.weight(name), *([self.weight(f"{name}.bias")] if layered else [])],
            [normed, "", "", total],
            domain=MICROSOFT,
            name=f"{name}.add",
            epsilon=self.shape.norm_epsilon,
        )
        return normed, total

    def feed_forward(self, block: str, value: str) -> str:
        """Up, bend, down; with a gate where the shape has one."""
        bias = self.shape.feed_forward_bias
        wide = self.linear(value, f"{block}.gate_up", bias=bias)
        if not self.shape.gated:
            return self.linear(self._activate(wide), f"{block}.down", bias=bias)
        gate, up = self.graph.nodes("Split", [wide], 2, axis=-1, num_outputs=2)
        return self.linear(self.graph.node("Mul", [self._activate(gate), up]), f"{block}.down", bias=bias)

    def _activate(self, value: str) -> str:
        match self.shape.activation:
            case Activation.SILU:
                # x * sigmoid(alpha * x) with alpha 1 is SiLU.
                return self.graph.node("QuickGelu", [value], domain=MICROSOFT, alpha=1.0)
            case Activation.GELU_TANH:
                return self.graph.node("Gelu", [value], approximate="tanh")
            case Activation.GELU:
                return self.graph.node("Gelu", [value])
