"""Quantised convolutions made fast, against the convolution computed in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bus.errors import ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.graphs.kokoro_build import fast_convolutions

RNG = np.random.default_rng(8)
EIGHT_BITS = RNG.integers(0, 255, (4, 3, 5), np.uint8)
SEVEN_BITS = RNG.integers(0, 128, (4, 3, 5), np.uint8)
ZERO, SCALE = np.array(120, np.uint8), np.array(0.02, np.float32)
BIAS = RNG.standard_normal((1, 4, 1)).astype(np.float32)
X = RNG.standard_normal((1, 3, 20)).astype(np.float32)


def quantised(values: NDArray[Any], with_bias: bool, dilation: int = 1, pads: int = 2) -> onnx.ModelProto:
    """The pattern that ONNX Runtime's dynamic quantisation writes."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node("Mul", ["xs", "ws"], ["scales"]),
        helper.make_node(
            "ConvInteger", ["xq", "wq", "xz", "wz"], ["c"], name="conv", pads=[pads] * 2, dilations=[dilation]
        ),
    ]
    if with_bias:
        nodes += [
            helper.make_node("Div", ["bias", "scales"], ["b1"]),
            helper.make_node("Floor", ["b1"], ["b2"]),
            helper.make_node("Cast", ["b2"], ["b3"], to=TensorProto.INT32),
            helper.make_node("Add", ["c", "b3"], ["c2"]),
        ]
    nodes += [
        helper.make_node("Cast", ["c2" if with_bias else "c"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scales"], ["y"]),
    ]
    constants = {"wq": values, "wz": ZERO, "ws": SCALE, "bias": BIAS}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, "time"])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def expected(values: NDArray[Any], with_bias: bool, dilation: int = 1, pads: int = 2) -> NDArray[Any]:
    weight = (values.astype(np.float32) - 120) * 0.02
    padded = np.pad(X[0], ((0, 0), (pads, pads)))
    reach = 4 * dilation
    columns = [padded[:, at : at + reach + 1 : dilation].reshape(-1) for at in range(padded.shape[1] - reach)]
    return np.asarray(weight.reshape(4, -1) @ np.stack(columns, axis=1) + (BIAS[0] if with_bias else 0))


@pytest.mark.parametrize("with_bias", [True, False])
def test_a_dense_convolution_is_exact_and_nothing_of_the_old_one_stays(tmp_path: Path, with_bias: bool) -> None:
    model = quantised(EIGHT_BITS, with_bias)
    assert fast_convolutions(model) == (0, 1)
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    onnx.save(model, tmp_path / "m.onnx")
    (found,) = OnnxSession(tmp_path / "m.onnx").run({"x": X})
    assert np.abs(found[0] - expected(EIGHT_BITS, with_bias)).max() < 1e-4


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("dilation", "pads"), [(1, 2), (3, 6), (1, 0), (2, 1)])
def test_a_product_rounds_only_the_input(tmp_path: Path, with_bias: bool, dilation: int, pads: int) -> None:
    model = quantised(SEVEN_BITS, with_bias, dilation, pads)
    assert fast_convolutions(model) == (1, 0)
    assert not any(node.op_type in ("Conv", "ConvInteger") for node in model.graph.node)
    onnx.save(model, tmp_path / "m.onnx")
    (found,) = OnnxSession(tmp_path / "m.onnx").run({"x": X})
    right = expected(SEVEN_BITS, with_bias, dilation, pads)
    step = (X.max() - X.min()) / 255  # of the rounded input; each of 15 terms is off by half of one at most
    assert found[0].shape == right.shape
    assert np.abs(found[0] - right).max() <= 15 * step / 2 * 2.4 * 1.01


def test_another_pattern_is_refused() -> None:
    model = quantised(EIGHT_BITS, False)
    model.graph.node[-1].op_type = "Add"
    with pytest.raises(ModelCorruptError, match="'conv'"):
        fast_convolutions(model)
