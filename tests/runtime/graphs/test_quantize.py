"""Blocks of integers. Right values: the bounds that rounding has, and plain float arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from runtime.engines.onnx import OnnxSession
from runtime.graphs.ops import Graph
from runtime.graphs.quantize import BlockWeight, quantize_blocks, quantize_to_4_bits

matrices = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=80),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)


@given(matrices, st.sampled_from([16, 32]))
def test_no_weight_moves_by_more_than_half_a_step(weight: np.ndarray, block: int) -> None:
    stored = quantize_blocks(weight, block)
    assert stored.values.shape == (len(weight), -(-weight.shape[1] // block), block)
    steps = np.repeat(stored.scales, block, axis=1)[:, : weight.shape[1]]
    assert (np.abs(stored.dense() - weight) <= steps * 0.5001).all()


@given(matrices, st.sampled_from([16, 32]))
def test_a_weight_in_4_bits_moves_by_half_a_step_and_the_rounding_of_its_offset(weight: np.ndarray, block: int) -> None:
    stored = quantize_to_4_bits(weight, block)
    blocks = -(-weight.shape[1] // block)
    steps = np.repeat(stored.scales[:, :blocks], block, axis=1)[:, : weight.shape[1]]
    # Of an offset: half a step where it stays whole, else a step of the columns, which stand for a block's sum.
    columns = np.abs(stored.scales[:, blocks:]).max(axis=1, initial=0)[:, None] / block
    offsets = columns if stored.means else steps / 2
    assert (np.abs(stored.dense() - weight) <= (steps / 2 + offsets) * 1.001 + 1e-5).all()


def on_a_grid(outputs: int, inputs: int, block: int) -> np.ndarray:
    """A matrix as Q4_1 stores it: in each block 16 steps above any offset, both ends in use."""
    random = np.random.default_rng(5)
    shape = (outputs, inputs // block, block)
    integers = random.integers(0, 16, shape)
    integers[..., 0], integers[..., 1] = 0, 15
    scales = random.uniform(0.01, 0.02, shape[:2])[..., None]
    offsets = -scales * random.uniform(5, 10, shape[:2])[..., None]
    return (integers * scales + offsets).reshape(outputs, inputs).astype(np.float32)


def test_a_matrix_that_was_in_4_bits_before_is_found_again() -> None:
    weight = on_a_grid(48, 256, 32)
    exact = np.abs(quantize_to_4_bits(weight).dense() - weight).max()
    whole = np.abs(rounded_to_whole_offsets(weight, 32) - weight).max()
    assert exact < 0.02 / 16
    assert exact < whole / 5


def rounded_to_whole_offsets(weight: np.ndarray, block: int) -> np.ndarray:
    """What blocks with zero points, and nothing else, make of a matrix."""
    grouped = weight.reshape(len(weight), -1, block)
    lows = grouped.min(axis=2, keepdims=True)
    scales = (grouped.max(axis=2, keepdims=True) - lows) / 15
    zeros = np.rint(-lows / scales)
    rounded: np.ndarray = ((np.rint(grouped / scales) + zeros).clip(0, 15) - zeros) * scales
    return rounded.reshape(weight.shape)


@pytest.mark.parametrize("rows", [(1, 1), (1, 5), (3, 1), (2, 4)])
@pytest.mark.parametrize("inputs", [64, 96, 72])
@pytest.mark.parametrize("quantize", [quantize_blocks, quantize_to_4_bits])
def test_the_kernel_multiplies_with_the_matrix_that_the_integers_stand_for(
    quantize: type, inputs: int, rows: tuple[int, int], tmp_path: Path
) -> None:
    random = np.random.default_rng(7)
    weight = random.standard_normal((40, inputs), dtype=np.float32) + np.float32(0.2)
    value = random.standard_normal((*rows, inputs), dtype=np.float32)
    stored: BlockWeight = quantize(weight)
    graph = Graph("product")
    graph.input("value", np.float32, ("batch", "token", inputs))
    graph.output(graph.matmul("value", "weight", stored), "product", np.float32, ("batch", "token", 40))
    graph.save(tmp_path / "product.onnx")
    (product,) = OnnxSession(tmp_path / "product.onnx").run({"value": value})
    right = value @ stored.dense().T
    # The kernel rounds the inputs to 8 bits in every block.
    assert np.abs(product - right).max() < 0.02 * np.abs(right).max()


def test_two_products_of_one_value_share_its_means(tmp_path: Path) -> None:
    weight = quantize_to_4_bits(on_a_grid(32, 64, 32))
    graph = Graph("products")
    graph.input("value", np.float32, ("batch", "token", 64))
    for name in ("first", "second"):
        graph.output(graph.matmul("value", f"{name}.weight", weight), name, np.float32, ("batch", "token", 32))
    graph.save(tmp_path / "products.onnx")
    operators = [node.op_type for node in onnx.load(tmp_path / "products.onnx").graph.node]
    assert operators.count("AveragePool") == 1
    assert operators.count("MatMulNBits") == 2
