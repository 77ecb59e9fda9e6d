from __future__ import annotations

import secrets
import socket

import pytest

from bus.errors import StoreError, StoreUnavailableError
from bus.store.bucket import S3Config
from bus.store.s3 import S3ObjectStore


def _config(endpoint: str, bucket: str, prefix: str = "") -> S3Config:
    return S3Config(
        bucket=bucket,
        endpoint=endpoint,
        access_key="access",
        secret_key="secret",
        secure=False,
        timeout_s=5,
        prefix=prefix,
    )


async def test_a_server_that_is_not_there_is_a_retryable_error() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        # Bound and not listening: every connection is refused for as long as the test runs.
        endpoint = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(StoreUnavailableError, match=endpoint) as caught:
            async with S3ObjectStore(_config(endpoint, "bucket")):
                pass
    assert caught.value.retryable


async def test_a_bucket_name_that_s3_refuses_is_not_retried(s3_endpoint: str) -> None:
    with pytest.raises(StoreError, match="A bucket") as caught:
        async with S3ObjectStore(_config(s3_endpoint, "A bucket!")):
            pass
    assert not caught.value.retryable


async def test_two_stacks_share_a_bucket_by_prefix(s3_endpoint: str) -> None:
    bucket = f"shared-{secrets.token_hex(4)}"
    async with (
        S3ObjectStore(_config(s3_endpoint, bucket, prefix="one")) as one,
        S3ObjectStore(_config(s3_endpoint, bucket, prefix="/two/")) as two,
    ):
        await one.put("key", b"1")
        await two.put("key", b"2")
        assert await one.get("key") == b"1"
        assert [key async for key in one.keys("")] == ["key"]


async def test_listings_go_over_many_pages(s3_endpoint: str) -> None:
    async with S3ObjectStore(_config(s3_endpoint, f"pages-{secrets.token_hex(4)}")) as store:
        expected = [f"k/{number:04}" for number in range(520)]
        for key in expected:
            await store.put(key, b"")
        assert [key async for key in store.keys("k/")] == expected


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(_config("host:1", "bucket")).replace("secret_key", "")
