"""Attention over the cache, with positions of one axis or of three."""

from __future__ import annotations

import numpy as np

from runtime.graphs.decoder.layers import Layers
from runtime.graphs.decoder.rotary import tables
from runtime.graphs.decoder.shape import Block, Rotary
from runtime.graphs.decoder.weights import Floats
from runtime.graphs.ops import MICROSOFT, Graph


class Attention:
    """The heads of every layer, and the inputs and tables that they share.

    Args:
        layers: The graph's pieces; inputs and outputs of the cache are declared at once.
    """

    def __init__(self, layers: Layers) -> None:
        self._layers, self._graph, self._shape = layers, layers.graph, layers.shape
        graph, shape = self._graph, self._shape
        graph.input("lengths", np.int32, ("batch",))
        graph.input("capacity_used", np.int32, ())
        if shape.takes_positions:
            graph.input("positions", np.int32, (3, "batch", "token"))
        cache = ("batch", shape.kv_heads, "capacity", shape.head_dim)
        for layer in range(shape.layers):
            for part in ("key", "value"):
                graph.input(f"past_key_values.{layer}.{part}", np.float32, cache)
                graph.declare_output(f"present.{layer}.{part}", np.float32, cache)
        self._tables = {rotary: self._declare(rotary) for rotary in shape.rotaries}

    def of(self, layer: int, value: str) -> str:
        """What the heads of a layer see, before its output projection."""
        name, shape, block = f"blocks.{layer}", self._shape, self._shape.blocks[layer]
        parts = [self._layers.linear(value, f"{name}.qkv", bias=shape.qkv_bias), "", ""]
        tables: tuple[str, ...] = ()
        turns_outside = block.rotary is not None and bool(block.rotary.axes)
        if shape.qk_norm or turns_outside:
            parts = self._split(parts[0], name)
        if block.rotary is not None and turns_outside:
            query, key = (self._turned(part, block.rotary) for part in parts[:2])
            parts = [query, key, parts[2]]
        elif block.rotary is not None:
            tables = self._tables[block.rotary][:2]
        cache = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        attended, *_ = self._graph.nodes(
            "GroupQueryAttention",
            [*parts, *cache, "lengths", "capacity_used", *tables],
            [f"{name}.attended", f"present.{layer}.key", f"present.{layer}.value"],
            domain=MICROSOFT,
            name=f"{name}.attention",
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=int(bool(tables)),
            rotary_interleaved=0,
            **self._choices(block),
        )
        return attended

    def _choices(self, block: Block) -> dict[str, float]:
        shape = self._shape
        chosen: dict[str, float] = {}
        if block.window is not None:
            chosen["local_window_size"] = block.window
        if shape.attention_scale is not None:
            chosen["scale"] = shape.attention_scale
        if shape.attention_softcap:
            chosen["softcap"] = shape.attention_softcap
        return chosen

    def _split(self, packed: str, name: str) -> list[str]:
        """Queries, keys and values apart, the first two normed where the shape says so."""
        shape, graph = self._shape, self._graph
        sizes = [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2]
        query, key, value = graph.nodes("Split", [packed, graph.constant(*sizes)], 3, axis=-1)
        if shape.qk_norm:
            query = self._normed(query, f"{name}.q_norm", sizes[0])
            key = self._normed(key, f"{name}.k_norm", sizes[1])
        return [query, key, value]

    def _normed(self, value: str, name: str, width: int) -> str:
        graph = self._graph
        by_head = graph.node("Reshape", [value, graph.constant(0, -1, self._shape.head_dim)])
        return graph.node("Reshape", [self._layers.norm(by_head, name), graph.constant(0, -1, width)])

    def _turned(self, value: str, rotary: Rotary) -> str:
        """Queries or keys, turned by positions that are an input."""
        cosine, sine, places = self._tables[rotary]
        # The operator takes the width of a head from the tables.
        return self._graph.node("RotaryEmbedding", [value, places, cosine, sine], domain=MICROSOFT)

    def _declare(self, rotary: Rotary) -> tuple[str, str, str]:
        """Names of the cosines, the sines and, where positions are an input, each token's row in them."""
        graph, name = self._graph, f"rotary.{self._shape.rotaries.index(rotary)}"
        cosine, sine = tables(rotary, self._shape.positions)
        if not rotary.axes:
            return graph.weight(f"{name}.cosine", cosine), graph.weight(f"{name}.sine", sine), ""
        size = graph.node("Shape", ["positions"], start=1, end=3)
        count = graph.node("ReduceProd", [size], keepdims=0)
        first, step = _scalar(graph, 0), _scalar(graph, 1)
        places = graph.node("Reshape", [graph.node("Range", [first, count, step]), size])
        return self._by_axis(f"{name}.cosine", cosine, rotary), self._by_axis(f"{name}.sine", sine, rotary), places

    def _by_axis(self, name: str, table: Floats, rotary: Rotary) -> str:
        """Rows of a table for this step's tokens, each column by its own axis of the position; `(token, pair)`.

        Source: Wang et al., Qwen2-VL (2024), section 2.1.
        """
        graph, axes = self._graph, np.array(rotary.axes)
        pieces, columns = [], []
        for axis in sorted(set(rotary.axes)):
            chosen = np.flatnonzero(axes == axis)
            positions = graph.node("Gather", ["positions", _scalar(graph, axis)], axis=0)
            pieces.append(graph.node("Gather", [graph.weight(f"{name}.{axis}", table[:, chosen]), positions]))
            columns.append(chosen)
        joined = graph.node("Concat", pieces, axis=-1)
        order = np.argsort(np.concatenate(columns))
        if (order != np.arange(len(order))).any():
            joined = graph.node("Gather", [joined, graph.weight(f"{name}.order", order)], axis=-1)
        return graph.node("Reshape", [joined, graph.constant(-1, len(axes))])


def _scalar(graph: Graph, value: int) -> str:
    return graph.weight(f"scalar.{value}", np.array(value, np.int64))
