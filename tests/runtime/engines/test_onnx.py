"""Sessions on a graph small enough to calculate by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bus.errors import InvalidInputError, ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.engines.providers import installed
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


def test_a_model_whose_weights_were_cut_short_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(path.read_bytes())
    (tmp_path / "model.data").write_bytes(path.with_suffix(".data").read_bytes()[:100])
    with pytest.raises(ModelCorruptError, match=r"model\.onnx"):
        OnnxSession(tmp_path / "model.onnx")


def test_a_model_without_its_weights_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(path.read_bytes())
    with pytest.raises(ModelCorruptError, match=r"model\.onnx"):
        OnnxSession(tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """total = a + b, whose axes have the same names."""
    graph = Graph("sum")
    values = [graph.input(name, np.float32, ("batch", "token")) for name in "ab"]
    graph.output(graph.node("Add", values), "total", np.float32, ("batch", "token"))
    path = tmp_path_factory.mktemp("sum") / "model.onnx"
    graph.save(path)
    return path


def test_inputs_that_do_not_fit_each_other_are_named(two: Path) -> None:
    inputs = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 1), np.float32)}
    with pytest.raises(InvalidInputError, match=r"axis 'token' is 3 in input 'a' and 1 in input 'b'.*\(2, 1\)"):
        OnnxSession(two, threads=1).run(inputs)


def test_bound_inputs_that_do_not_fit_each_other_are_named(two: Path) -> None:
    binding = OnnxSession(two, threads=1).bind()
    binding.input("a", np.ones((2, 3), np.float32)).output("total", np.zeros((2, 3), np.float32))
    binding.input("b", np.ones((2, 1), np.float32))
    with pytest.raises(InvalidInputError, match="axis 'token'"):
        binding.run()
    result = np.zeros((2, 3), np.float32)
    binding.input("b", np.ones((2, 3), np.float32)).output("total", result).run()
    assert (result == 2).all()


@pytest.mark.parametrize("axis", ["?", "None", "token + 1"])
def test_axes_that_have_no_name_may_differ(tmp_path: Path, axis: str) -> None:
    graph = Graph("sum")
    value = graph.input("a", np.float32, (axis, axis))
    graph.output(graph.node("Neg", [value]), "y", np.float32, (axis, axis))
    graph.save(tmp_path / "model.onnx")
    (found,) = OnnxSession(tmp_path / "model.onnx", threads=1).run({"a": np.ones((2, 3), np.float32)})
    assert (found == -1).all()


DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif("cuda" not in installed(), reason="no CUDA provider here")]
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_what_one_run_wrote_the_next_one_reads_on_its_device(two: Path, device: str) -> None:
    session = OnnxSession(two, device=device, threads=1)
    assert session.device == device
    ones = np.ones((2, 3), np.float32)
    total = session.run_on_device({"a": ones, "b": ones}, ["total"])["total"]
    for _ in range(4):
        total = session.run_on_device({"a": total, "b": ones})["total"]
    assert total.device == device
    assert total.shape == (2, 3)
    np.testing.assert_array_equal(total.array(), np.full((2, 3), 6, np.float32))


def test_tensors_of_another_run_are_checked_like_arrays(two: Path) -> None:
    session = OnnxSession(two, threads=1)
    total = session.run_on_device({name: np.ones((2, 3), np.float32) for name in "ab"})["total"]
    with pytest.raises(InvalidInputError, match="axis 'batch'"):
        session.run_on_device({"a": total, "b": np.ones((1, 3), np.float32)})
    with pytest.raises(InvalidInputError, match="no output sum"):
        session.run_on_device({"a": total, "b": total}, ["sum"])


def test_memory_that_is_given_back_changes_no_result(path: Path) -> None:
    session = OnnxSession(path, threads=1, shrink=True)
    for rows in (1, 500, 2):
        (found,) = session.run({"x": np.zeros((rows, 1024), np.float32)})
        np.testing.assert_array_equal(found[-1], np.arange(1024))


def test_a_value_that_is_no_number_comes_through(path: Path) -> None:
    (found,) = OnnxSession(path, threads=1).run({"x": np.full((1, 1024), np.nan, np.float32)})
    assert np.isnan(found).all()


def test_no_rows_give_no_rows(path: Path) -> None:
    (found,) = OnnxSession(path, threads=1).run({"x": np.zeros((0, 1024), np.float32)})
    assert found.shape == (0, 1024)
