"""Sessions on a graph small enough to calculate by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bus.errors import InvalidInputError, ModelCorruptError, ProviderMissingError
from runtime.engines import providers
from runtime.engines.onnx import OnnxSession
from runtime.graphs.ops import Graph


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x + w, with w large enough to lie in the file of weights."""
    graph = Graph("add")
    value = graph.input("x", np.float32, ("batch", 1024))
    weight = graph.weight("w", np.arange(1024, dtype=np.float32))
    graph.output(graph.node("Add", [value, weight]), "y", np.float32, ("batch", 1024))
    path = tmp_path_factory.mktemp("add") / "model.onnx"
    graph.save(path)
    return path


def test_weights_in_a_file_beside_the_model_are_found(path: Path) -> None:
    assert path.with_suffix(".data").stat().st_size == 4096
    (found,) = OnnxSession(path, threads=1).run({"x": np.ones((2, 1024), np.float32)})
    np.testing.assert_array_equal(found, np.tile(np.arange(1024, dtype=np.float32) + 1, (2, 1)))


@pytest.mark.parametrize(("spin", "spin_us"), [(False, 0), (True, 0), (True, 20)])
def test_how_threads_wait_changes_no_result(path: Path, spin: bool, spin_us: int) -> None:
    (found,) = OnnxSession(path, threads=2, spin=spin, spin_us=spin_us).run({"x": np.ones((64, 1024), np.float32)})
    np.testing.assert_array_equal(found, np.tile(np.arange(1024, dtype=np.float32) + 1, (64, 1)))


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"x": np.ones((2, 1024))}, "float32.*float64"),
        ({"x": np.ones((2, 7), np.float32)}, r"\(2, 7\)"),
        ({"x": np.ones(1024, np.float32)}, r"\(1024,\)"),
        ({}, "missing {'x'}"),
        ({"x": np.ones((1, 1024), np.float32), "z": np.ones(1)}, "unknown {'z'}"),
    ],
)
def test_inputs_that_do_not_fit_are_named(path: Path, inputs: dict[str, np.ndarray], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        OnnxSession(path, threads=1).run(inputs)


def test_bound_memory_is_read_and_written_in_place(path: Path) -> None:
    session = OnnxSession(path, threads=1)
    source, target = np.zeros((3, 1024), np.float32), np.zeros((3, 1024), np.float32)
    binding = session.bind().input("x", source[1:2]).output("y", target[2:3])
    for value in (5.0, 6.0):
        source[1] = value
        binding.run()
        np.testing.assert_array_equal(target[2], np.arange(1024) + value)
    assert not target[:2].any()


def test_memory_that_is_not_contiguous_cannot_be_bound(path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not contiguous"):
        OnnxSession(path, threads=1).bind().input("x", np.zeros((2, 2048), np.float32)[:, ::2])


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_what_is_no_model_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(ModelCorruptError, match=r"x\.onnx"):
        OnnxSession(tmp_path / "x.onnx")


def test_a_model_without_its_weights_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(path.read_bytes())
    with pytest.raises(ModelCorruptError, match=r"model\.onnx"):
        OnnxSession(tmp_path / "model.onnx")


def test_the_cpu_is_always_there_and_comes_last() -> None:
    states = {state.name: state for state in providers.available()}
    assert list(states) == ["tensorrt", "cuda", "cpu"]
    assert states["cpu"].usable
    assert providers.choose()[-1] == "CPUExecutionProvider"
    assert providers.choose("cpu") == ["CPUExecutionProvider"]


def test_a_provider_that_is_missing_is_answered_with_the_extra_to_install() -> None:
    missing = [state for state in providers.available() if not state.usable]
    for state in missing:
        assert "omnibus-inference[gpu]" in state.remedy
        with pytest.raises(ProviderMissingError, match=r"omnibus-inference\[gpu\]"):
            providers.choose(state.name)
    with pytest.raises(ProviderMissingError, match="known: auto"):
        providers.choose("abacus")
