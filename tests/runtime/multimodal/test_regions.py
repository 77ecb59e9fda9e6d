"""What tokens in a grid see."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from runtime.multimodal.regions import grid_regions

SIZES = some.integers(1, 40)


@given(SIZES, SIZES)
def test_the_tokens_of_a_grid_share_the_picture_without_gaps(rows: int, columns: int) -> None:
    regions = grid_regions(rows, columns).reshape(rows, columns, 4).astype(np.float64)
    np.testing.assert_array_equal(regions[:, 1:, 0], regions[:, :-1, 2])
    np.testing.assert_array_equal(regions[1:, :, 1], regions[:-1, :, 3])
    sizes = regions[..., 2:] - regions[..., :2]
    np.testing.assert_allclose(sizes.prod(axis=-1), 1 / rows / columns, rtol=1e-4)


def test_tokens_beyond_the_picture_see_none_of_it() -> None:
    regions = grid_regions(1, 3, (-0.5, 0.25, 1.0, 2.0))
    np.testing.assert_allclose(regions, [[0, 0.25, 0, 1], [0, 0.25, 0.5, 1], [0.5, 0.25, 1, 1]])
