"""Downloading: over a server that has ranges or has none, breaks off, changes its files, or is waited for in vain."""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import threading
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import httpx
import numpy as np
import pytest

from bus.errors import EngineError, InvalidInputError, ModelCorruptError, ModelSourceError, OmnibusError
from runtime.repository.download import download
from runtime.repository.progress import OnBytes, silent
from runtime.repository.ranges import TransferConfig
from tests.made.range_server import RangeServer

PART = 10_000
DATA = np.random.default_rng(7).bytes(9 * PART - 1)
OTHER = np.random.default_rng(8).bytes(len(DATA))
SHA256 = hashlib.sha256(DATA).hexdigest()
CONFIG = TransferConfig(part_nbytes=PART, connections=4, backoff_s=0.0)


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer() as server:
        server.files["/weights"] = DATA
        yield server


def bring(
    server: RangeServer,
    folder: Path,
    *,
    sha256: str | None = None,
    config: TransferConfig = CONFIG,
    on_bytes: OnBytes = silent,
) -> bytes:
    url = f"{server.origin}/weights?signature=secret"
    with httpx.Client() as client:
        target = folder / "here" / "weights"
        return download(url, target, client=client, sha256=sha256, config=config, on_bytes=on_bytes).read_bytes()


def left(folder: Path) -> set[str]:
    return {path.name for path in (folder / "here").iterdir()} - {".weights.lock"}


def part_of(span: str | None) -> int:
    assert span is not None
    return int(span.removeprefix("bytes=").partition("-")[0]) // PART


def test_a_file_is_read_in_parts_four_of_them_at_once(server: RangeServer, tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=30)

    def wait(span: str | None) -> None:
        if part_of(span):  # the first part tells how many there are
            together.wait()

    server.on_request = wait
    assert bring(server, tmp_path) == DATA
    assert sorted(part_of(span) for _, span in server.requests) == list(range(9))
    assert server.sent_nbytes == len(DATA)
    assert left(tmp_path) == {"weights"}


def test_progress_only_grows_and_ends_at_the_length_of_the_file(server: RangeServer, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    bring(server, tmp_path, on_bytes=lambda name, done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (len(DATA), len(DATA))


def test_a_server_without_ranges_is_read_in_one_stream(server: RangeServer, tmp_path: Path) -> None:
    server.ranges = False
    assert bring(server, tmp_path) == DATA
    assert len(server.requests) == 1
    server.cut_after = [25_000]
    assert bring(server, tmp_path / "again", sha256=SHA256) == DATA
    assert len(server.requests) == 3


def test_a_server_that_does_not_tell_a_length_is_read_in_one_stream(server: RangeServer, tmp_path: Path) -> None:
    server.lengths = False
    seen: list[int | None] = []
    assert bring(server, tmp_path, on_bytes=lambda name, done, total: seen.append(total)) == DATA
    assert set(seen) == {None}
    assert server.requests[-1] == ("/weights?signature=secret", None)


def test_a_file_that_nothing_is_known_of_is_read_in_one_stream(server: RangeServer, tmp_path: Path) -> None:
    server.etag = None
    assert bring(server, tmp_path) == DATA
    assert server.requests[-1][1] is None
    assert bring(server, tmp_path / "of a known digest", sha256=SHA256) == DATA
    assert server.requests[-1][1] is not None


def test_an_empty_file_is_a_file(server: RangeServer, tmp_path: Path) -> None:
    server.files["/weights"] = b""
    assert bring(server, tmp_path) == b""
    assert left(tmp_path) == {"weights"}


def test_a_connection_that_breaks_in_the_middle_of_a_part_costs_no_byte(server: RangeServer, tmp_path: Path) -> None:
    server.cut_after = [3_000, 1, 0, 500]
    assert bring(server, tmp_path, sha256=SHA256) == DATA
    assert server.sent_nbytes == len(DATA)
    assert len(server.requests) == 9 + 4


@pytest.mark.parametrize("tag", ["strong", "weak", "date"])
def test_a_file_that_changes_between_its_parts_is_read_anew(server: RangeServer, tmp_path: Path, tag: str) -> None:
    strong = server.etag
    assert strong is not None
    server.etag = {"strong": strong, "weak": lambda data: f"W/{strong(data)}", "date": None}[tag]
    server.modified = "Tue, 01 Dec 2026 00:00:00 GMT" if tag == "date" else None

    def change(span: str | None) -> None:
        if span is not None and part_of(span) == 5:
            server.files["/weights"] = OTHER
            server.modified = "Tue, 01 Dec 2026 00:00:09 GMT" if tag == "date" else None

    server.on_request = change
    assert bring(server, tmp_path) == OTHER
    assert left(tmp_path) == {"weights"}


def test_a_file_that_changes_all_the_time_is_read_in_one_stream(server: RangeServer, tmp_path: Path) -> None:
    tags = iter(range(100))
    server.etag = lambda data: f'"{next(tags)}"'  # as of hosts that do not agree
    assert bring(server, tmp_path) == DATA
    assert server.requests[-1][1] is None


def test_parts_of_two_files_do_not_pass_for_the_one_of_a_digest(server: RangeServer, tmp_path: Path) -> None:
    server.etag = None
    server.files["/weights"] = OTHER

    def change(span: str | None) -> None:
        server.files["/weights"] = DATA if len(server.requests) > 5 else OTHER

    server.on_request = change
    assert bring(server, tmp_path, sha256=SHA256) == DATA


def test_bytes_of_another_digest_are_refused_and_not_kept(server: RangeServer, tmp_path: Path) -> None:
    server.files["/weights"] = OTHER
    with pytest.raises(ModelCorruptError, match=f"/weights has sha256 .*, expected {SHA256}"):
        bring(server, tmp_path, sha256=SHA256)
    assert left(tmp_path) == set()


def give_up_after(server: RangeServer, folder: Path, parts: int) -> None:
    """Read that many parts on one connection, and fail at the next one."""
    server.on_request = lambda span: server.refuse.append(503) if part_of(span) >= parts else None
    with pytest.raises(ModelSourceError):
        bring(server, folder, config=TransferConfig(part_nbytes=PART, connections=1, tries=1))
    server.on_request = lambda span: None
    server.refuse.clear()
    server.requests.clear()


def test_a_part_that_cannot_be_read_is_named_and_what_is_there_is_kept(server: RangeServer, tmp_path: Path) -> None:
    server.on_request = lambda span: server.refuse.append(503) if part_of(span) == 2 else None
    with pytest.raises(ModelSourceError) as caught:
        bring(server, tmp_path, config=TransferConfig(part_nbytes=PART, connections=1, backoff_s=0.0))
    assert caught.value.retryable
    said = str(caught.value)
    assert f"{server.origin.rpartition(':')[0]}/weights: bytes 20000 to 29999 of weights" in said
    assert "4 tries" in said
    assert "pull again to go on from 20000 bytes" in said
    assert "secret" not in said
    assert len(server.requests) == 2 + 4
    assert left(tmp_path) == {"weights.part", "weights.parts"}


def test_the_next_download_reads_only_what_is_missing(server: RangeServer, tmp_path: Path) -> None:
    give_up_after(server, tmp_path, 4)
    seen: list[int] = []
    assert bring(server, tmp_path, on_bytes=lambda name, done, total: seen.append(done)) == DATA
    assert sorted(part_of(span) for _, span in server.requests) == [4, 5, 6, 7, 8]
    assert seen[0] == 4 * PART
    assert left(tmp_path) == {"weights"}


def test_a_part_that_was_damaged_meanwhile_is_read_again(server: RangeServer, tmp_path: Path) -> None:
    give_up_after(server, tmp_path, 4)
    with (tmp_path / "here" / "weights.part").open("r+b") as file:
        file.seek(2 * PART + 17)
        file.write(b"\0\0\0")
    assert bring(server, tmp_path) == DATA
    assert sorted(part_of(span) for _, span in server.requests) == [2, 4, 5, 6, 7, 8]


def test_a_file_that_changed_meanwhile_is_read_from_the_start(server: RangeServer, tmp_path: Path) -> None:
    give_up_after(server, tmp_path, 4)
    server.files["/weights"] = OTHER
    assert bring(server, tmp_path) == OTHER


@pytest.mark.parametrize("journal", ["", "no json\n", '{"file": {"total": "x"}}\n', "[]\n"])
def test_a_journal_that_makes_no_sense_is_no_journal(server: RangeServer, tmp_path: Path, journal: str) -> None:
    give_up_after(server, tmp_path, 4)
    (tmp_path / "here" / "weights.parts").write_text(journal)
    assert bring(server, tmp_path) == DATA


@pytest.mark.parametrize(("status", "retryable"), [(404, False), (403, False), (500, True), (429, True)])
def test_a_refusal_is_tried_again_where_that_may_help(
    server: RangeServer, tmp_path: Path, status: int, retryable: bool
) -> None:
    server.refuse = [status] * 4
    with pytest.raises(ModelSourceError, match=str(status)) as caught:
        bring(server, tmp_path)
    assert caught.value.retryable is retryable
    assert len(server.requests) == (4 if retryable else 1)


def _with_room_for(nbytes: int, origin: str, folder: Path, results: Queue[object]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
    try:
        with httpx.Client() as client:
            download(f"{origin}/weights", folder / "here" / "weights", client=client, config=CONFIG)
    except OmnibusError as error:
        results.put(error)


@pytest.mark.parametrize(("lengths", "reads"), [(True, 1), (False, 2)])
def test_a_file_that_there_is_no_room_for_is_refused_and_leaves_nothing(
    server: RangeServer, tmp_path: Path, lengths: bool, reads: int
) -> None:
    server.lengths = lengths
    spawn = multiprocessing.get_context("spawn")
    results: Queue[object] = spawn.Queue()
    process = spawn.Process(target=_with_room_for, args=(50_000, server.origin, tmp_path, results))
    process.start()
    error = results.get(timeout=60)
    process.join(60)
    assert isinstance(error, EngineError)
    assert not error.retryable
    assert f"weights cannot be written to {tmp_path / 'here'}" in str(error)
    assert "MB are free; make room" in str(error)
    assert left(tmp_path) == set()
    assert len(server.requests) <= reads  # known before anything is read, where the length is


def test_a_folder_that_cannot_be_made_is_told_by_its_name(server: RangeServer, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"a file")
    with pytest.raises(EngineError, match="here"):
        bring(server, tmp_path)


@pytest.mark.parametrize("field", ["part_nbytes", "connections", "tries"])
def test_sizes_that_make_no_sense_are_refused(field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        TransferConfig(**{field: 0})
