from __future__ import annotations

import subprocess
import sys

import pytest

from bus.errors import InvalidInputError
from bus.store.bucket import S3Config
from bus.store.directory import DirectoryObjectStore
from bus.store.location import open_store
from bus.store.s3 import S3ObjectStore


def test_a_file_url_is_a_folder() -> None:
    store = open_store("file:///var/lib/omnibus%20data")
    assert isinstance(store, DirectoryObjectStore)
    assert str(store.root) == "/var/lib/omnibus data"


def test_an_s3_url_says_bucket_prefix_endpoint_and_region() -> None:
    store = open_store("s3://media/stack?endpoint=http://minio:9000&region=eu-1", access_key="a", secret_key="s")
    assert isinstance(store, S3ObjectStore)
    assert store.config == S3Config(
        bucket="media",
        endpoint="minio:9000",
        access_key="a",
        secret_key="s",
        secure=False,
        region="eu-1",
        prefix="/stack",
    )


@pytest.mark.parametrize(
    ("query", "secure"),
    [("", True), ("endpoint=https://h:1", True), ("endpoint=h:1", True), ("endpoint=h:1&secure=false", False)],
)
def test_an_endpoint_speaks_tls_unless_told_otherwise(query: str, secure: bool) -> None:
    store = open_store(f"s3://bucket?{query}")
    assert isinstance(store, S3ObjectStore)
    assert store.config.secure is secure


@pytest.mark.parametrize(
    "url",
    ["", "objects", "/var/lib", "file://", "file:///", "file://other-host/x", "http://x/y", "s3://", "s3://b?endpiont=x",
     "s3://key:secret@bucket"],
)  # fmt: skip
def test_a_url_that_names_no_store_is_refused_with_what_works(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"file:///folder|are known"):
        open_store(url)


def test_the_s3_client_is_loaded_only_for_s3() -> None:
    script = (
        "import sys; from bus.store.location import open_store; open_store('file:///x'); print('minio' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"
