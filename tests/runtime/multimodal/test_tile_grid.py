"""Where pictures stand in grids of tiles, against transformers and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_onevision.modeling_llava_onevision import unpad_image

from runtime.multimodal.interpolation import bilinear
from runtime.multimodal.tile_grid import Tile, TileGrid, best_size

TILE = Tile(pixels=60, side=4, patch=14)
SIZES = [(60 * rows, 60 * columns) for rows in range(1, 7) for columns in range(1, 7)]
EDGES = some.integers(1, 5000)


@given(EDGES, EDGES)
def test_the_best_size_and_what_shows_the_picture_are_those_of_the_reference(height: int, width: int) -> None:
    right = select_best_resolution((height, width), SIZES)
    if right is None:  # a line that no grid shows a pixel of
        return
    size = best_size((height, width), SIZES)
    assert size == right
    grid = TileGrid(picture=(height, width), size=size, tile=TILE, most_tiles=9)
    places = torch.arange(size[0] // 60 * 4 * size[1] // 60 * 4).reshape(1, size[0] // 60 * 4, size[1] // 60 * 4)
    shown = unpad_image(places, (height, width))[0]  # type: ignore[no-untyped-call]
    top, bottom, left, right_edge = grid.cropped
    np.testing.assert_array_equal(places[0, top:bottom, left:right_edge], shown)


@given(EDGES, EDGES, some.integers(1, 9))
def test_every_token_of_a_grid_sees_a_part_of_the_picture(height: int, width: int, most: int) -> None:
    grid = TileGrid(picture=(height, width), size=best_size((height, width), SIZES), tile=TILE, most_tiles=most)
    regions = grid.regions()
    assert regions.shape == (grid.tokens, 4)
    assert (regions >= 0).all()
    assert (regions <= 1).all()
    assert (regions[:, :2] <= regions[:, 2:]).all()
    assert grid.kept[0] * grid.kept[1] <= max(most * 16 * 1.1**2, 16)


def test_a_border_is_no_part_of_the_picture() -> None:
    grid = TileGrid(picture=(40, 100), size=(60, 120), tile=TILE, most_tiles=9)
    assert grid.scaled == (48, 120)
    assert grid.border == (6, 0)
    regions = grid.regions().reshape(4, 9, 4)
    np.testing.assert_allclose(regions[0, 0], [0, 0, 14 / 120, 8 / 48], atol=1e-6)
    np.testing.assert_allclose(regions[2, 4], [0.5, 22 / 48, 74 / 120, 36 / 48], atol=1e-6)


@pytest.mark.parametrize("size", [(3, 5), (9, 14), (1, 1), (7, 2)])
def test_features_are_made_fewer_as_the_reference_does(size: tuple[int, int]) -> None:
    features = np.random.default_rng(0).standard_normal((2, 9, 14, 6)).astype(np.float32)
    right = torch.nn.functional.interpolate(torch.from_numpy(features.transpose(0, 3, 1, 2)), size, mode="bilinear")
    np.testing.assert_allclose(bilinear(features, *size), right.numpy().transpose(0, 2, 3, 1), atol=1e-5)
