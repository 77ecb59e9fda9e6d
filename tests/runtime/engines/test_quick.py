"""Sessions that open with their weights as they lie, and are brought to their full speed later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from weakref import ref

import numpy as np
import pytest

from runtime.engines.graph_cache import GraphCache, use_graph_cache
from runtime.engines.onnx import OnnxSession
from tests.runtime.engines.small_model import install, weight

X = np.random.default_rng(7).standard_normal((3, 64)).astype(np.float32)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    use_graph_cache(GraphCache())


def test_a_session_that_opens_quickly_is_right_before_and_after_it_has_settled(tmp_path: Path) -> None:
    path = install(tmp_path)
    session = OnnxSession(path, threads=1, quick=True)
    before = session.run({"x": X})[0]
    session.settle()
    after = session.run({"x": X})[0]
    for found in (before, after):
        np.testing.assert_allclose(found, X @ weight(), rtol=1e-4, atol=1e-5)


def test_runs_go_on_while_a_quick_session_settles(tmp_path: Path) -> None:
    path = install(tmp_path, width=1024)
    x = np.ones((2, 1024), np.float32)
    session = OnnxSession(path, threads=1, quick=True)
    settled = Thread(target=session.settle)
    for _ in range(2):
        np.testing.assert_allclose(session.run({"x": x})[0], x @ weight(1024), rtol=1e-3, atol=1e-3)
    settled.start()
    while settled.is_alive():
        np.testing.assert_allclose(session.run({"x": x})[0], x @ weight(1024), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(session.run({"x": x})[0], x @ weight(1024), rtol=1e-3, atol=1e-3)


def test_a_loose_file_opened_quickly_is_just_opened(tmp_path: Path) -> None:
    path = install(tmp_path)
    (path.parent / "manifest.json").unlink()
    session = OnnxSession(path, threads=1, quick=True)
    session.settle()
    np.testing.assert_allclose(session.run({"x": X})[0], X @ weight(), rtol=1e-4, atol=1e-5)


def test_a_quick_session_that_nobody_runs_is_at_its_full_speed_soon(tmp_path: Path) -> None:
    session = OnnxSession(install(tmp_path), threads=1, quick=True)
    opened = session._session
    ends_s = time.monotonic() + 30
    while session._session is opened:
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    np.testing.assert_allclose(session.run({"x": X})[0], X @ weight(), rtol=1e-4, atol=1e-5)


def test_a_quick_session_that_is_closed_is_gone_at_once_and_is_not_packed_for_nobody(tmp_path: Path) -> None:
    session = OnnxSession(install(tmp_path), threads=1, quick=True)
    gone = ref(session)
    packing = session._packing
    assert packing is not None
    del session
    assert gone() is None
    packing.start()
    packing.join()  # without an error of a session that is not there
    assert gone() is None


def test_one_that_is_closed_after_its_first_run_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.engines.onnx._PACK_AFTER_S", 60.0)
    session = OnnxSession(install(tmp_path), threads=1, quick=True)
    session.run({"x": X})  # which begins to wait until what it has found has gone out
    gone, hurry = ref(session), session._hurry
    del session
    assert gone() is None
    hurry.set()
