"""Optimised graphs: saved once, mapped by all, never trusted when they are damaged, gone with their model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bus.errors import ModelCorruptError
from runtime.engines.graph_cache import GraphCache, GraphKey, use_graph_cache
from runtime.engines.identity import identify
from runtime.engines.onnx import OnnxSession
from runtime.repository import Catalog, Repository
from runtime.repository.ports import declared_ports
from tests.runtime.engines.small_model import describe, install, weight

X = np.random.default_rng(7).standard_normal((3, 64)).astype(np.float32)

PROGRAM = """
import sys
import time
from pathlib import Path
import numpy as np
from runtime.engines.onnx import OnnxSession

def unique():
    with open("/proc/self/smaps_rollup") as rollup:
        sizes = [line.split() for line in rollup if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(int(fields[1]) for fields in sizes) * 1024

width = int(sys.argv[2])
before = unique()
session = OnnxSession(Path(sys.argv[1]), threads=1)
(y,) = session.run({"x": np.ones((1, width), np.float32)})
print(unique() - before, float(np.abs(y).sum()), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    use_graph_cache(GraphCache())


def entries(root: Path) -> list[Path]:
    return sorted(path for path in (root / ".graphs").glob("*/*/*") if path.is_dir())


def check(path: Path, seed: int = 0) -> None:
    (found,) = OnnxSession(path, threads=1).run({"x": X})
    np.testing.assert_allclose(found, X @ weight(seed=seed), rtol=1e-4, atol=1e-5)


def test_the_first_session_saves_the_graph_and_the_second_maps_it(tmp_path: Path) -> None:
    path = install(tmp_path)
    check(path)
    (entry,) = entries(tmp_path)
    assert entry.parent == tmp_path / ".graphs" / "tiny" / "1"
    before = (entry / "model.data").stat()
    session = OnnxSession(path, threads=1)
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8") if sys.platform == "linux" else str(entry)
    assert str(entry) in mapped
    np.testing.assert_allclose(session.run({"x": X})[0], X @ weight(), rtol=1e-4, atol=1e-5)
    assert (entry / "model.data").stat().st_mtime_ns == before.st_mtime_ns


def test_a_loose_file_is_opened_as_it_is(tmp_path: Path) -> None:
    path = install(tmp_path)
    (path.parent / "manifest.json").unlink()
    check(path)
    assert entries(tmp_path) == []


def test_processes_that_start_together_save_one_graph(tmp_path: Path) -> None:
    path = install(tmp_path)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), "64"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    sums = {process.communicate()[0].split()[1] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(sums) == 1
    assert len(entries(tmp_path)) == 1
    assert list((tmp_path / ".graphs").rglob("*.new")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what memory a process has alone")
def test_a_second_process_shares_the_weights_of_the_first(tmp_path: Path) -> None:
    width = 2048
    path = install(tmp_path, width=width)
    OnnxSession(path, threads=1)
    command = [sys.executable, "-c", PROGRAM, str(path), str(width)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()  # it has the model mapped from now on
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
            grown = int(second.communicate()[0].split()[0])
        first.communicate()
    assert grown < 0.5 * width * width * 4


@pytest.mark.parametrize("name", ["model.data", "model.onnx", "entry.json"])
def test_a_saved_graph_that_was_cut_short_is_made_again(tmp_path: Path, name: str) -> None:
    path = install(tmp_path)
    check(path)
    (entry,) = entries(tmp_path)
    whole = (entry / name).stat().st_size
    with (entry / name).open("r+b") as file:
        file.truncate(whole // 2)
    check(path)
    assert (entry / name).stat().st_size == whole


def test_a_saved_graph_that_does_not_open_is_left_out_and_then_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = install(tmp_path)
    check(path)
    (entry,) = entries(tmp_path)
    (entry / "model.onnx").write_bytes(b"?" * (entry / "model.onnx").stat().st_size)
    check(path)
    assert entries(tmp_path) == []
    assert "does not open and is removed" in caplog.text
    check(path)
    assert len(entries(tmp_path)) == 1


def test_what_a_dead_process_left_half_written_is_not_taken_for_a_graph(tmp_path: Path) -> None:
    path = install(tmp_path)
    check(path)
    (entry,) = entries(tmp_path)
    half = entry.with_name(f".{entry.name}.new")
    entry.rename(half)
    (half / "model.data").write_bytes(b"half")
    check(path)
    assert len(entries(tmp_path)) == 1
    assert not half.exists()


def test_another_build_of_the_same_version_is_another_graph(tmp_path: Path) -> None:
    path = install(tmp_path)
    check(path)
    shutil.rmtree(path.parent)
    check(install(tmp_path, seed=1), seed=1)
    assert len(entries(tmp_path)) == 2


def test_graphs_of_the_past_are_removed_but_the_newest_three(tmp_path: Path) -> None:
    path = install(tmp_path)
    identity = identify(path)
    assert identity is not None
    keys = [GraphKey.of(identity, path, f"runtime {number}") for number in range(5)]
    cache = GraphCache()

    def save(folder: Path) -> None:
        for name in ("model.onnx", "model.data"):
            (folder / name).write_bytes(b"saved")

    for key in keys:
        assert cache.make(key, save)
    assert [cache.find(key) is not None for key in keys] == [False, False, True, True, True]


def test_graphs_of_versions_that_somebody_deleted_go_with_the_next_one_that_is_kept(tmp_path: Path) -> None:
    check(install(tmp_path))
    shutil.rmtree(tmp_path / "tiny" / "1")
    check(install(tmp_path, version="2"))
    assert [entry.parent.name for entry in entries(tmp_path)] == ["2"]


def test_a_folder_that_cannot_be_written_costs_the_cache_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    use_graph_cache(GraphCache(tmp_path / "file"))
    check(install(tmp_path / "models"))
    assert "is not kept" in caplog.text


def test_a_full_disk_costs_the_cache_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = install(tmp_path)
    identity = identify(path)
    assert identity is not None
    key = replace(GraphKey.of(identity, path), nbytes=10**18)
    assert GraphCache().make(key, lambda folder: None) is None
    assert "are free" in caplog.text


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    use_graph_cache(None)
    check(install(tmp_path))
    assert entries(tmp_path) == []


def test_graphs_go_with_their_model(tmp_path: Path) -> None:
    check(install(tmp_path))
    check(install(tmp_path, version="2"))
    Repository(tmp_path, catalog=Catalog(())).remove("tiny@1")
    assert [entry.parent.name for entry in entries(tmp_path)] == ["2"]


@pytest.mark.parametrize("damage", ["short", "missing"])
def test_weights_that_are_not_as_the_manifest_says_are_refused(tmp_path: Path, damage: str) -> None:
    path = install(tmp_path)
    data = path.with_suffix(".data")
    if damage == "short":
        data.write_bytes(data.read_bytes()[:100])
    else:
        data.unlink()
    with pytest.raises(ModelCorruptError, match=r"model\.data.*verify tiny --repair"):
        OnnxSession(path)


@pytest.mark.parametrize(
    ("ports", "problem"),
    [
        ({"x": ["float32", "batch", 65]}, r"'x' is float32 \(batch, 65\); in its model it is float32 \(batch, 64\)"),
        ({"x": ["int64", "batch", 64]}, "'x' is int64"),
        ({"x": ["float32", 64]}, "'x' is float32"),
        ({"y": ["float32", None, 65]}, r"'y' is float32 \(\?, 65\)"),
        ({"ids": ["int64", "batch"]}, "names 'ids', which its model has not"),
    ],
)
def test_a_manifest_that_lies_about_shapes_is_refused(tmp_path: Path, ports: dict[str, object], problem: str) -> None:
    path = install(tmp_path, ports={"model.onnx": ports})
    with pytest.raises(ModelCorruptError, match=problem):
        OnnxSession(path)


def test_a_manifest_that_tells_the_truth_is_believed(tmp_path: Path) -> None:
    path = install(tmp_path, ports={"model.onnx": {"x": ["float32", "batch", 64], "y": ["float32", None, 64]}})
    check(path)


def test_a_model_that_is_no_model_is_refused_though_its_manifest_vouches_for_it(tmp_path: Path) -> None:
    path = install(tmp_path)
    path.write_bytes(b"?" * path.stat().st_size)
    with pytest.raises(ModelCorruptError, match=r"model\.onnx cannot be opened"):
        OnnxSession(path)
    assert entries(tmp_path) == []


def test_the_ports_that_a_graph_declares_are_those_that_the_runtime_finds(tmp_path: Path) -> None:
    path = install(tmp_path)
    declared = declared_ports(path)
    assert declared == {"x": ["float32", None, 64], "y": ["float32", None, 64]}
    describe(path.parent, ports={"model.onnx": declared})
    check(path)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelCorruptError, match=r"broken\.onnx is no ONNX file"):
        declared_ports(tmp_path / "broken.onnx")


def test_a_manifest_of_other_files_vouches_for_nothing(tmp_path: Path) -> None:
    path = install(tmp_path)
    loose = path.with_name("other.onnx")
    describe(path.parent)
    loose.write_bytes(path.read_bytes())
    assert identify(loose) is None
    assert identify(path) is not None
