"""Attention of many sequences that lie in one row of tokens: those of the same length together, none of them padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from runtime.graphs.ops import MICROSOFT, Graph


def attention_over_runs(
    graph: Graph, parts: tuple[str, str, str], runs: str, *, heads: int, hidden: int, name: str
) -> str:
    """What every token sees of its own sequence, float32 `(1, token, hidden)`.

    A run is several sequences of one length, one behind the other. Without padding nothing needs a mask, so that ONNX
    Runtime takes its way through attention that never holds all scores at once; and a large picture beside small ones
    costs no more than alone.

    Args:
        graph: Gets the nodes.
        parts: Queries, keys and values, float32 `(1, token, hidden)` each.
        runs: int64 `(run, 3)`: where a run begins and ends among the tokens, and how long its sequences are.
        heads: Attention heads.
        hidden: Width of all heads together.
        name: Stands before the names of the values in it.
    """
    flat = [graph.node("Reshape", [part, graph.constant(-1, hidden)]) for part in parts]
    sizes = (graph.constant(0), graph.constant(-1), graph.constant(hidden))
    body = _body(f"{name}.run", runs, flat, heads, sizes)
    seen = over_runs(graph, runs, body, (hidden,), f"{name}.runs")
    return graph.node("Unsqueeze", [seen, graph.constant(0)])


def over_runs(graph: Graph, runs: str, body: GraphProto, sizes: tuple[int, ...], name: str) -> str:
    """What a body gives for each run, one behind the other, float32 `(row, *sizes)`.

    Args:
        graph: Gets the nodes.
        runs: int64 `(run, …)`.
        body: See `gathering`.
        sizes: All but the first of what it gives.
        name: Of the loop.
    """
    count = graph.node("Gather", [graph.node("Shape", [runs]), graph.weight("runs.scalar.0", np.array(0, np.int64))])
    going = graph.weight("runs.going", np.array(True))
    nothing = graph.weight(f"runs.nothing.{sizes}", np.zeros((0, *sizes), np.float32))
    return graph.node("Loop", [count, going, nothing], name=name, body=body)


def gathering(name: str, made: Sequence[NodeProto], seen: str, rank: int) -> GraphProto:
    """A body of `over_runs`: what nodes make of the run `<name>.number` is put behind what was made of those before it.

    Args:
        name: Of the body, and before the names of the values in it.
        made: The nodes.
        seen: What they make, float32.
        rank: Its axes.
    """
    node, value, rows = helper.make_node, helper.make_tensor_value_info, TensorProto.FLOAT
    ends = [
        node("Concat", [f"{name}.before", seen], [f"{name}.after"], axis=0),
        node("Identity", [f"{name}.going"], [f"{name}.on"]),
    ]
    given = [value(f"{name}.number", TensorProto.INT64, []), value(f"{name}.going", TensorProto.BOOL, [])]
    return helper.make_graph(
        [*made, *ends],
        name,
        [*given, value(f"{name}.before", rows, [None] * rank)],
        [value(f"{name}.on", TensorProto.BOOL, []), value(f"{name}.after", rows, [None] * rank)],
    )


def _body(name: str, runs: str, parts: list[str], heads: int, sizes: tuple[str, str, str]) -> GraphProto:
    """One run: its number, and what was seen in the runs before it, to that and what was seen in it.

    Args:
        name: Of the body, and before the names of the values in it.
        runs: See `attention_over_runs`.
        parts: Queries, keys and values, float32 `(token, hidden)` each.
        heads: Attention heads.
        sizes: Constants around the body: 0, -1 and the width of all heads.
    """
    (zero, all_left, width), ends = sizes, [f"{name}.{end}" for end in ("start", "stop", "length")]
    node = helper.make_node
    made = [
        node("Gather", [runs, f"{name}.number"], [f"{name}.bounds"]),
        node("Split", [f"{name}.bounds"], ends, num_outputs=3),
        node("Concat", [all_left, ends[2], width], [f"{name}.shape"], axis=0),
        node("Concat", [all_left, width], [f"{name}.flat_shape"], axis=0),
    ]
    for place, part in enumerate(parts):
        made.append(node("Slice", [part, *ends[:2], zero], [f"{name}.{place}.rows"]))
        made.append(node("Reshape", [f"{name}.{place}.rows", f"{name}.shape"], [f"{name}.{place}"]))
    inputs = [f"{name}.{place}" for place in range(3)]
    made += [
        node("MultiHeadAttention", inputs, [f"{name}.seen"], domain=MICROSOFT, num_heads=heads),
        node("Reshape", [f"{name}.seen", f"{name}.flat_shape"], [f"{name}.flat"]),
    ]
    return gathering(name, made, f"{name}.flat", 2)
