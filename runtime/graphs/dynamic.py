"""Matrix products in whole 8-bit numbers, for inputs of many rows at once.

Blocks of weights (`MatMulNBits`) win where a step reads all weights for one row; where hundreds of rows share one read,
arithmetic is the limit, and integers take half the time of floats, even without VNNI.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.graphs.ops import MICROSOFT, Graph

_MOST = 63
"""Seven bits and a sign: with eight, processors without VNNI saturate when they add two products in 16 bits."""

_LEAST = 1e-9


def dynamic_matmul(graph: Graph, value: str, name: str, weight: NDArray[np.float32]) -> str:
    """`value @ weight.T`, the weight rounded once by output, the value while it runs by row.

    The operator knows one scale for the whole value, which its loudest row decides; so each row is divided by its own
    peak before and multiplied by it after. On Whisper's encoder that halves the error and costs a twentieth.

    Args:
        graph: Gets the nodes.
        value: float32 `(batch, row, in)`.
        name: Name of the weight and, with it, of the node.
        weight: float32 `(out, in)`.
    """
    scales = np.maximum(np.abs(weight).max(axis=1) / _MOST, _LEAST).astype(np.float32)
    whole = np.rint(weight / scales[:, None]).astype(np.int8)
    peaks = graph.node("ReduceMax", [graph.node("Abs", [value]), graph.constant(-1)], keepdims=1)
    peaks = graph.node("Max", [peaks, graph.weight("dynamic.least", np.array(_LEAST, np.float32))])
    inputs = [
        graph.node("Div", [value, peaks]),
        graph.weight(f"{name}.whole", np.ascontiguousarray(whole.T)),
        graph.weight(f"{name}.scales", scales),
        graph.weight(f"{name}.zeros", np.zeros(len(scales), np.int8)),
    ]
    product = graph.node("DynamicQuantizeMatMul", inputs, domain=MICROSOFT, name=f"{name}.matmul")
    return graph.node("Mul", [product, peaks])
