"""What a server says of a file is not believed: it ends in the right bytes or in an error of ours, and always ends."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, repeat
from pathlib import Path

import httpx
import numpy as np
import pytest

from bus.errors import ModelCorruptError, ModelSourceError
from runtime.repository.download import download
from runtime.repository.ranges import TransferConfig
from tests.made.raw_server import Answer, RawServer

DATA = np.random.default_rng(9).bytes(45_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
CONFIG = TransferConfig(part_nbytes=10_000, connections=2, tries=3, backoff_s=0.0)
ENDLESS = repeat(b"x" * 65_536)

Span = tuple[int, int | None] | None


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "Connection: close", "", ""]).encode("latin-1")


def partial(span: Span, total: object, body: Iterable[bytes] | None = None) -> Iterator[bytes]:
    """A range of the file, which says that the file has so many bytes."""
    first, last = (0, None) if span is None else span
    last = len(DATA) - 1 if last is None else min(last, len(DATA) - 1)
    yield head("206 Partial Content", f"Content-Range: bytes {first}-{last}/{total}", 'ETag: "same"')
    yield from [DATA[first : last + 1]] if body is None else chain([DATA[first : last + 1]], body)


def bring(answer: Answer, folder: Path, nbytes: int | None = None) -> bytes:
    with RawServer(answer) as server, httpx.Client() as client:
        url, target = f"{server.origin}/weights", folder / "weights"
        return download(url, target, client=client, sha256=SHA256, nbytes=nbytes, config=CONFIG).read_bytes()


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".weights.lock"}


@pytest.mark.parametrize("total", [0, 3, "99999999999999999999999", "9" * 5_000, "²", "-5", "*"])
def test_a_range_of_a_file_that_cannot_be_is_no_answer(tmp_path: Path, total: object) -> None:
    def answer(span: Span) -> Iterable[bytes]:
        return partial((4, 9), total) if span is None or total == 3 else partial(span, total)

    with pytest.raises(ModelSourceError, match="in 3 tries: no answer was of what was asked for"):
        bring(answer, tmp_path)
    assert left(tmp_path) == set()


def test_a_length_beyond_all_files_is_not_made_room_for(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="in 3 tries"):
        bring(lambda span: [head("200 OK", "Content-Length: 99999999999999999999"), DATA], tmp_path)


def test_a_file_whose_length_is_another_one_each_time_is_given_up(tmp_path: Path) -> None:
    lengths = count(len(DATA))
    with pytest.raises(ModelSourceError, match="in 3 tries: no answer was of what was asked for"):
        bring(lambda span: partial(span, next(lengths)), tmp_path)


@pytest.mark.parametrize("asked", ["99999999999999999999999", "²", "-1", "soon"])
def test_a_wait_that_makes_no_sense_is_not_waited(tmp_path: Path, asked: str) -> None:
    with pytest.raises(ModelSourceError, match="in 3 tries: HTTP 503"):
        bring(lambda span: [head("503 Busy", f"Retry-After: {asked}", "Content-Length: 0")], tmp_path)


def test_an_answer_that_never_ends_is_read_as_far_as_it_was_asked_for(tmp_path: Path) -> None:
    assert bring(lambda span: partial(span, len(DATA), ENDLESS), tmp_path) == DATA


ENDLESS_FILES: dict[str, Callable[[], Iterable[bytes]]] = {
    "of a length": lambda: chain([head("200 OK", "Content-Length: 9999999999"), DATA], ENDLESS),
    "of none": lambda: chain([head("200 OK"), DATA], ENDLESS),
}


@pytest.mark.parametrize("kind", ENDLESS_FILES)
def test_no_more_is_kept_of_a_file_than_it_should_have(tmp_path: Path, kind: str) -> None:
    most = 0

    def answer(span: Span) -> Iterator[bytes]:
        nonlocal most
        for chunk in ENDLESS_FILES[kind]():
            most = max(most, *(path.stat().st_size for path in tmp_path.iterdir()))
            yield chunk

    if kind == "of a length":
        with pytest.raises(ModelCorruptError, match=f"has 9999999999 bytes, expected {len(DATA)}"):
            bring(answer, tmp_path, nbytes=len(DATA))
        assert left(tmp_path) == set()
    else:
        assert bring(answer, tmp_path, nbytes=len(DATA)) == DATA
    assert most <= len(DATA)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_of_another_length_is_refused_before_anything_of_it_is_written(tmp_path: Path, ranges: bool) -> None:
    whole = [head("200 OK", f"Content-Length: {len(DATA)}"), DATA]
    with pytest.raises(ModelCorruptError, match=f"has {len(DATA)} bytes, expected 44999"):
        bring(lambda span: partial(span, len(DATA)) if ranges else whole, tmp_path, nbytes=44_999)
    assert left(tmp_path) == set()


def test_bytes_that_were_packed_on_their_way_do_not_pass_for_the_file(tmp_path: Path) -> None:
    packed = gzip.compress(DATA)
    with pytest.raises(ModelCorruptError, match="the source changed or is damaged"):
        bring(
            lambda span: [head("200 OK", "Content-Encoding: gzip", f"Content-Length: {len(packed)}"), packed], tmp_path
        )
    assert left(tmp_path) == set()
