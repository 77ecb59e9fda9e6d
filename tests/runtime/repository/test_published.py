"""Fetching published models: by several processes at once, by one that is killed, and where there is no room."""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import threading
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import pytest

from bus.contracts import ModelFile, ModelManifest
from bus.errors import EngineError, OmnibusError
from runtime.repository import Catalog, Repository, TransferConfig
from runtime.repository.published import fetch
from tests.runtime.repository.http_store import HttpShelf, StoreServer

PARTS = TransferConfig(part_nbytes=50_000, connections=2, backoff_s=0.0)
FILES = {f"layer-{number}.bin": np.random.default_rng(number).bytes(400_000) for number in range(3)}
TOTAL = sum(len(data) for data in FILES.values())


@pytest.fixture
def server() -> Iterator[StoreServer]:
    """Has the model large@1."""
    manifest = ModelManifest(
        id="large", version="1", family="test", modalities_in=("text",), modalities_out=("text",), license="MIT",
        source=("file:///elsewhere",),
        files=tuple(
            ModelFile(path=path, sha256=hashlib.sha256(data).hexdigest(), nbytes=len(data))
            for path, data in FILES.items()
        ),
    )  # fmt: skip
    with StoreServer() as server:
        server.files = {f"/large/1/{path}": data for path, data in FILES.items()}
        server.files["/large/1/manifest.json"] = manifest.model_dump_json().encode()
        yield server


def models(folder: Path) -> Repository:
    return Repository(folder / "models", catalog=Catalog(()), transfer=PARTS)


def _fetch(origin: str, folder: Path, most: int | None, results: Queue[object]) -> None:
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        results.put(fetch(models(folder), "large", HttpShelf(origin)).ref)
    except OmnibusError as error:
        results.put(error)


def elsewhere(
    server: StoreServer, folder: Path, results: Queue[object], most: int | None = None
) -> multiprocessing.context.SpawnProcess:
    """Another process that fetches the model, with room for files of so many bytes."""
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_fetch, args=(server.origin, folder, most, results))
    process.start()
    return process


@pytest.fixture
def results() -> Queue[object]:
    return multiprocessing.get_context("spawn").Queue()


def sent_of_files(server: StoreServer) -> int:
    asked = [path for path, _ in server.requests if path.endswith("manifest.json") or path == "/"]
    small = {"/": len(server.page("/") or b""), "/large/1/manifest.json": len(server.files["/large/1/manifest.json"])}
    return server.sent_nbytes - sum(small[path] for path in asked)


def test_two_processes_that_fetch_at_once_read_it_once(
    server: StoreServer, tmp_path: Path, results: Queue[object]
) -> None:
    processes = [elsewhere(server, tmp_path, results) for _ in range(2)]
    assert [results.get(timeout=60) for _ in processes] == ["large@1", "large@1"]
    for process in processes:
        process.join(60)
    assert models(tmp_path).verify("large") == ()
    assert sent_of_files(server) == TOTAL


def test_a_fetch_that_is_killed_serves_nothing_and_the_next_one_reads_only_what_is_missing(
    server: StoreServer, tmp_path: Path, results: Queue[object]
) -> None:
    held, go_on = threading.Semaphore(0), threading.Event()

    def hold(span: str | None) -> None:
        begun = sum((one or "").startswith("bytes=0-") for _, one in server.requests)
        # In the middle of the second of three files: whoever asks for this has the parts before it on the disk.
        if begun == 2 and span is not None and int(span[6:].split("-")[0]) >= 4 * PARTS.part_nbytes:
            held.release()
            assert go_on.wait(60)

    server.on_request = hold
    process = elsewhere(server, tmp_path, results)
    for _ in range(PARTS.connections):
        assert held.acquire(timeout=60)
    process.kill()
    process.join()
    assert models(tmp_path).list() == ()
    before = sent_of_files(server)
    server.on_request = lambda span: None
    go_on.set()
    server.requests.clear()
    server.sent_nbytes = 0
    fetch(models(tmp_path), "large", HttpShelf(server.origin))
    assert models(tmp_path).verify("large") == ()
    ranges = [(path, span) for path, span in server.requests if span is not None]
    assert len(ranges) == 3 * 8 - 12
    assert before == 12 * PARTS.part_nbytes
    folder = models(tmp_path).root / "large" / "1"
    assert {path.name for path in folder.iterdir()} == {*FILES, "manifest.json"}


def test_a_model_that_there_is_no_room_for_leaves_nothing(
    server: StoreServer, tmp_path: Path, results: Queue[object]
) -> None:
    process = elsewhere(server, tmp_path, results, most=300_000)
    error = results.get(timeout=60)
    process.join(60)
    assert isinstance(error, EngineError)
    assert not error.retryable
    assert "layer-0.bin cannot be written" in str(error)
    assert models(tmp_path).list() == ()
    assert not list((models(tmp_path).root / ".incoming").rglob("layer*"))
