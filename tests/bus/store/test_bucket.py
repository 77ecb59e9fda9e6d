"""A bucket, call by call."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bus.errors import InvalidInputError, ObjectMissingError
from bus.store.bucket import S3Bucket, S3Config
from bus.store.location import open_bucket


@pytest.fixture
def bucket(s3_endpoint: str) -> Iterator[S3Bucket]:
    url = f"s3://calls-{secrets.token_hex(4)}/some/prefix?endpoint=http://{s3_endpoint}"
    opened = open_bucket(url, access_key="access", secret_key="secret")
    opened.ensure()
    yield opened
    opened.close()


def test_a_file_of_several_pieces_is_stored_as_one_object(bucket: S3Bucket, tmp_path: Path) -> None:
    data = secrets.token_bytes(11 << 20)
    (tmp_path / "weights").write_bytes(data)
    bucket.put_file("a/weights", tmp_path / "weights")
    assert bucket.get("a/weights") == data
    assert list(bucket.keys()) == ["a/weights"]


def test_a_signed_url_gives_ranges_without_other_credentials(bucket: S3Bucket) -> None:
    bucket.put("a/b", b"0123456789")
    answer = httpx.get(bucket.signed_url("a/b"), headers={"Range": "bytes=2-4"})
    assert (answer.status_code, answer.content) == (206, b"234")
    assert answer.headers["Content-Range"] == "bytes 2-4/10"
    assert answer.headers["ETag"]


def test_a_bucket_that_is_not_there_has_no_objects(s3_endpoint: str) -> None:
    missing = S3Bucket(
        S3Config(bucket="nobody-made-it", endpoint=s3_endpoint, access_key="access", secret_key="secret", secure=False)
    )
    with pytest.raises(ObjectMissingError, match="nobody-made-it"):
        missing.get("key")
    with pytest.raises(ObjectMissingError, match=r"no bucket 'nobody-made-it' at .*make it, or name one that is there"):
        list(missing.keys())
    missing.close()


@pytest.mark.parametrize("url", ["file:///folder", "s3:///key", "https://bucket/key", "s3://key@bucket/key"])
def test_what_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is no bucket"):
        open_bucket(url)
