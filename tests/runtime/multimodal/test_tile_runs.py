"""Tiles through an encoder a few at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.engines.onnx import OnnxSession
from runtime.graphs.ops import Graph
from runtime.multimodal.tile_runs import run_tiles


def session(folder: Path, axis: str) -> OnnxSession:
    """Doubles what it is given, and tells a constant beside it."""
    graph = Graph("doubling")
    pixels = graph.input("pixels", np.float32, (axis, 3))
    graph.output(graph.node("Add", [pixels, pixels]), "embeddings", np.float32, (axis, 3))
    graph.output(graph.weight("row", np.arange(3, dtype=np.float32)), "newline", np.float32, (3,))
    graph.output(graph.node("ReduceSum", [pixels], keepdims=0), "total", np.float32, ())
    graph.save(folder / "doubling.onnx")
    return OnnxSession(folder / "doubling.onnx", threads=1)


@pytest.mark.parametrize("most", [1, 3, 6, 7, 30, 1000])
def test_every_tile_is_encoded_whatever_goes_into_a_run(most: int, tmp_path: Path) -> None:
    pixels = np.arange(30, dtype=np.float32).reshape(10, 3)
    embeddings, newline, total = run_tiles(session(tmp_path, "tile"), {"pixels": pixels}, most)
    np.testing.assert_array_equal(embeddings, 2 * pixels)
    np.testing.assert_array_equal(newline, [0, 1, 2])
    # The sum of a run tells how many tiles it had.
    assert total == pixels[: max(1, most // 3)].sum()


def test_what_is_no_tile_is_not_cut(tmp_path: Path) -> None:
    pixels = np.arange(30, dtype=np.float32).reshape(10, 3)
    _, _, total = run_tiles(session(tmp_path, "patch"), {"pixels": pixels}, 3)
    assert total == pixels.sum()
