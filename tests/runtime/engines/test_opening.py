"""Files that are no models are told as such, in whatever way the runtime stumbles over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.engines.graph_cache import GraphCache, use_graph_cache
from runtime.engines.onnx import OnnxSession
from tests.runtime.engines.small_model import install, weight

X = np.ones((1, 64), np.float32)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    use_graph_cache(GraphCache())


def damage(path: Path) -> None:
    """An operator's name that is no UTF-8: the runtime cannot even say what is wrong."""
    graph = path.read_bytes()
    assert b"MatMul" in graph
    path.write_bytes(graph.replace(b"MatMul", b"\xa7atMul"))


def test_a_model_whose_fault_cannot_be_spelled_is_corrupt(tmp_path: Path) -> None:
    path = install(tmp_path)
    damage(path)
    use_graph_cache(None)
    with pytest.raises(ModelCorruptError, match=r"model\.onnx cannot be opened"):
        OnnxSession(path)


def test_a_saved_graph_whose_fault_cannot_be_spelled_is_left_out(tmp_path: Path) -> None:
    path = install(tmp_path)
    OnnxSession(path)
    (saved,) = (tmp_path / ".graphs").glob("*/*/*/model.onnx")
    damage(saved)
    (found,) = OnnxSession(path).run({"x": X})
    np.testing.assert_allclose(found, X @ weight(), rtol=1e-4, atol=1e-5)
    assert not saved.exists()
