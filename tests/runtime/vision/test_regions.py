"""Regions against scipy's labelling, rectangles against a sweep over all angles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from runtime.vision.regions import Rectangle, regions, smallest_rectangle


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.05, 0.3, 0.5, 0.8]))
def test_regions_are_those_of_an_independent_labelling(seed: int, share: float) -> None:
    mask = np.random.default_rng(seed).random((17, 23)) < share
    labels, count = ndimage.label(mask, structure=np.ones((3, 3)))
    found = {frozenset(map(tuple, points.astype(int).tolist())) for points in regions(mask)}
    expected = set()
    for label in range(1, count + 1):
        ends = set()
        for y, row in enumerate(labels == label):
            edges = np.flatnonzero(np.diff(np.pad(row.astype(int), 1)))
            ends |= {(x, y) for x in edges[::2].tolist()} | {(x - 1, y) for x in edges[1::2].tolist()}
        expected.add(frozenset(ends))
    assert found == expected


def test_an_empty_mask_has_no_region() -> None:
    assert list(regions(np.zeros((5, 5), np.bool_))) == []


def swept_area(points: NDArray[Any]) -> float:
    angles = np.linspace(0, np.pi / 2, 20_001)
    u = points @ np.stack([np.cos(angles), np.sin(angles)])
    v = points @ np.stack([-np.sin(angles), np.cos(angles)])
    return float((np.ptp(u, axis=0) * np.ptp(v, axis=0)).min())


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=30))
def test_no_angle_gives_a_smaller_rectangle(pairs: list[tuple[int, int]]) -> None:
    points = np.array(pairs, np.float64)
    rectangle = smallest_rectangle(points)
    assert rectangle.width * rectangle.height <= swept_area(points) + 1e-6
    along = np.array([np.cos(rectangle.angle), np.sin(rectangle.angle)])
    across = np.array([-along[1], along[0]])
    inside = points - np.array(rectangle.centre)
    assert np.abs(inside @ along).max() <= rectangle.width / 2 + 1e-6
    assert np.abs(inside @ across).max() <= rectangle.height / 2 + 1e-6


def test_a_turned_rectangle_is_found_again() -> None:
    drawn = Rectangle((100.0, 50.0), 80.0, 10.0, 0.3)
    found = smallest_rectangle(drawn.corners())
    assert (found.width, found.height, found.angle) == pytest.approx((80, 10, 0.3))
    assert found.centre == pytest.approx((100, 50))


def test_corners_begin_top_left_and_go_round() -> None:
    assert Rectangle((10, 10), 6, 2, 0.0).corners().tolist() == [[7, 9], [13, 9], [13, 11], [7, 11]]


def test_growing_moves_every_side() -> None:
    grown = Rectangle((0, 0), 6, 2, 0.5).grown(1.5)
    assert (grown.width, grown.height, grown.angle) == (9, 5, 0.5)
