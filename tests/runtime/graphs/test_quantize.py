from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from runtime.graphs.quantize import quantize_blocks

matrices = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)


@given(matrices, st.sampled_from([16, 32]))
def test_no_weight_moves_by_more_than_half_a_step(weight: np.ndarray, block: int) -> None:
    stored = quantize_blocks(weight, block)
    assert stored.values.shape == (len(weight), -(-weight.shape[1] // block), block)
    steps = np.repeat(stored.scales, block, axis=1)[:, : weight.shape[1]]
    assert (np.abs(stored.dense() - weight) <= steps * 0.5001).all()
