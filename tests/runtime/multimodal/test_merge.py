"""Tokens that are put together: how many, which ones, and what is left of their places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import FramePiece
from runtime.multimodal.family import Laid
from runtime.multimodal.merge import merge


def picture(rows: int, columns: int, *, steps: int = 1, seed: int = 0, dim: int = 8, film: bool = False) -> Laid:
    """Random embeddings in a grid."""
    time, row, column = (axis.reshape(-1) for axis in np.indices((steps, rows, columns)))
    regions = np.stack([column / columns, row / rows, (column + 1) / columns, (row + 1) / rows], axis=1)
    embeddings = np.random.default_rng(seed).standard_normal((len(time), dim))
    return Laid(
        embeddings.astype(np.float32),
        np.stack([time, row, column]).astype(np.int32),
        (FramePiece(slots=len(time)),),
        seconds_per_step=0.5 if film else None,
        regions=regions.astype(np.float32),
    )


def sound(embeddings: list[list[float]]) -> Laid:
    places = np.arange(len(embeddings), dtype=np.int32)
    return Laid(
        np.array(embeddings, np.float32),
        np.stack([places] * 3),
        (FramePiece(slots=len(places)),),
        seconds_per_step=0.04,
    )


def having(laid: Laid, **changes: Any) -> Laid:
    return replace(laid, **changes)


@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    steps=st.integers(1, 3),
    wanted=st.integers(1, 160),
    seed=st.integers(0, 9),
)
def test_as_many_tokens_as_wanted_cover_the_picture_in_order(
    rows: int, columns: int, steps: int, wanted: int, seed: int
) -> None:
    before = picture(rows, columns, steps=steps, seed=seed, film=True)
    after = merge(before, wanted)
    assert len(after.embeddings) == min(wanted, rows * columns * steps)
    assert after.positions.shape == (3, len(after.embeddings))
    assert sum(piece.slots for piece in after.frame) == len(after.embeddings)
    assert {tuple(place) for place in after.positions.T} <= {tuple(place) for place in before.positions.T}
    flat = after.positions.T @ [rows * columns, columns, 1]
    assert (np.diff(flat) > 0).all()
    assert after.positions[:, -1].tolist() == before.positions[:, -1].tolist()
    assert after.regions is not None
    assert after.regions[:, 0].min() == 0
    assert after.regions[:, 3].max() == 1


@given(wanted=st.integers(1, 30), seed=st.integers(0, 9))
def test_a_token_is_the_mean_of_those_that_it_stands_for(wanted: int, seed: int) -> None:
    before = picture(5, 6, seed=seed, dim=31)
    # Each input's own axis tells what share of it is in which token.
    before = having(before, embeddings=np.concatenate([before.embeddings, np.eye(30, dtype=np.float32)], axis=1))
    shares = merge(before, wanted).embeddings[:, 31:]
    assert np.allclose(shares.sum(axis=1), 1)
    members = shares > 0
    assert (members.sum(axis=0) == 1).all()
    sizes = members.sum(axis=1, keepdims=True)
    assert np.allclose(shares, members / sizes)


def test_what_fits_is_left_as_it_is() -> None:
    before = picture(3, 4)
    after = merge(before, 12)
    assert np.array_equal(after.embeddings, before.embeddings)
    assert np.array_equal(after.positions, before.positions)
    assert after.frame == before.frame


def test_a_picture_of_two_halves_becomes_two_tokens_with_their_places() -> None:
    before = picture(4, 6)
    halves = np.where(before.positions[2][:, None] < 3, [[1.0, 0.0]], [[0.0, 2.0]]).astype(np.float32)
    after = merge(having(before, embeddings=halves), 2)
    assert after.embeddings.tolist() == [[1, 0], [0, 2]]
    assert after.regions is not None
    assert np.allclose(after.regions, [[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    assert after.positions[:, 1].tolist() == [0, 3, 5]


def test_only_neighbours_are_put_together() -> None:
    tokens: list[list[float]] = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0], [0.9, 0.1, 0]]
    after = merge(sound(tokens), 5)
    assert np.allclose(after.embeddings, np.array([*tokens[:4], [0.95, 0.05, 0]]))


def test_tokens_of_two_tiles_stay_apart_and_each_tile_keeps_one() -> None:
    before = picture(2, 8)
    same = np.ones_like(before.embeddings)
    frame = (FramePiece(text="<row_1>"), FramePiece(slots=8), FramePiece(text="<row_2>"), FramePiece(slots=8))
    after = merge(having(before, embeddings=same, frame=frame), 1)
    assert [(piece.text, piece.slots) for piece in after.frame] == [("<row_1>", 0), ("", 1), ("<row_2>", 0), ("", 1)]


def test_a_film_that_stands_still_becomes_one_of_its_frames() -> None:
    before = picture(3, 3, steps=4, film=True)
    still = np.tile(before.embeddings[:9], (4, 1))
    after = merge(having(before, embeddings=still), 9)
    assert after.regions is not None
    assert np.allclose(after.regions, before.regions[:9] if before.regions is not None else 0)
    assert np.allclose(after.embeddings, still[:9], atol=1e-6)


@pytest.mark.parametrize("wanted", [1, 3])
def test_latents_without_a_place_have_no_neighbours(wanted: int) -> None:
    before = having(picture(2, 2), regions=None)
    assert np.array_equal(merge(before, wanted).embeddings, before.embeddings)
