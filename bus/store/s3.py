"""Objects in a bucket of any S3: MinIO, RustFS, Ceph, AWS.

Importing this loads the `minio` client, which takes 0.2 s; `bus.store.location` imports it only for `s3://`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from types import TracebackType
from typing import Self

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from bus.errors import ObjectMissingError, StoreError, StoreUnavailableError
from bus.store.keys import check_key

_MISSING = frozenset({"NoSuchKey", "NoSuchObject", "NoSuchBucket"})
_PASSING = frozenset({"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"})
_PAGE = 500


@dataclass(frozen=True, kw_only=True)
class S3Config:
    """Where the bucket is and how to reach it.

    Attributes:
        bucket: Its name; it is created on open when it is not there.
        endpoint: `host:port` of the server, without a scheme.
        access_key: Empty for anonymous access.
        secret_key: Never shown.
        secure: Whether to speak TLS.
        region: Given, it saves one request that asks for it.
        prefix: Put before every key, so that several stacks can share a bucket.
        connections: How many requests may be under way at once.
        timeout_s: The longest that one request may wait for the server.
    """

    bucket: str
    endpoint: str = "s3.amazonaws.com"
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    secure: bool = True
    region: str = "us-east-1"
    prefix: str = ""
    connections: int = 8
    timeout_s: float = 30.0


class S3ObjectStore:
    """An `ObjectStore` over one bucket; the client is synchronous, so every call runs in a thread."""

    def __init__(self, config: S3Config) -> None:
        """A store that connects on open."""
        self.config = config
        self._prefix = f"{config.prefix.strip('/')}/" if config.prefix.strip("/") else ""
        self._slots = asyncio.Semaphore(config.connections)
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=config.connections,
            timeout=urllib3.Timeout(connect=min(5.0, config.timeout_s), read=config.timeout_s),
            # The caller retries with back-off; only a connection that the server had closed is tried again.
            retries=urllib3.Retry(total=1, backoff_factor=0.1, status_forcelist=()),
        )
        self._client = Minio(
            endpoint=config.endpoint,
            access_key=config.access_key or None,
            secret_key=config.secret_key or None,
            secure=config.secure,
            region=config.region,
            http_client=self._pool,
        )

    async def __aenter__(self) -> Self:
        """Create the bucket when it is not there.

        Raises:
            StoreUnavailableError: (retryable) the server does not answer.
            StoreError: It refuses the credentials or the bucket.
        """
        async with self._slots:
            await asyncio.to_thread(self._ensure_bucket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._pool.clear()

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store the bytes; see `ObjectStore.put`."""
        name = self._name(key)
        async with self._slots:
            await asyncio.to_thread(self._put, name, data)

    async def get(self, key: str) -> bytes:
        """The bytes of the key; see `ObjectStore.get`."""
        name = self._name(key)
        async with self._slots:
            return await asyncio.to_thread(self._get, name)

    async def nbytes(self, key: str) -> int | None:
        """Size of the object; None when there is none."""
        name = self._name(key)
        async with self._slots:
            return await asyncio.to_thread(self._nbytes, name)

    async def age_s(self, key: str) -> float | None:
        """Seconds since the object was last written; None when there is none."""
        name = self._name(key)
        async with self._slots:
            return await asyncio.to_thread(self._age_s, name)

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""
        name = self._name(key)
        async with self._slots:
            await asyncio.to_thread(self._delete, name)

    async def expire(self, prefix: str, older_than_s: float) -> int:
        """Remove what starts with the prefix and was last written longer ago; returns how many objects."""
        old = [key async for key in self.keys(prefix) if (await self.age_s(key) or 0.0) > older_than_s]
        for key in old:
            await self.delete(key)
        return len(old)

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Every key that starts with the prefix, sorted."""
        found = self._client.list_objects(bucket_name=self.config.bucket, prefix=self._prefix + prefix, recursive=True)
        while True:
            async with self._slots:
                page = await asyncio.to_thread(self._page, found)
            for name in page:
                yield name.removeprefix(self._prefix)
            if len(page) < _PAGE:
                return

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _ensure_bucket(self) -> None:
        bucket = self.config.bucket
        with self._translated(bucket):
            if self._client.bucket_exists(bucket_name=bucket):
                return
            try:
                self._client.make_bucket(bucket_name=bucket)
            except S3Error as error:
                # Another worker of the stack was faster.
                if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                    raise

    def _put(self, name: str, data: bytes | memoryview) -> None:
        with self._translated(name):
            self._client.put_object(
                bucket_name=self.config.bucket, object_name=name, data=BytesIO(data), length=len(data)
            )

    def _get(self, name: str) -> bytes:
        with self._translated(name):
            response = self._client.get_object(bucket_name=self.config.bucket, object_name=name)
            try:
                return bytes(response.read())
            finally:
                response.close()
                response.release_conn()

    def _nbytes(self, name: str) -> int | None:
        try:
            with self._translated(name):
                return self._client.stat_object(bucket_name=self.config.bucket, object_name=name).size
        except ObjectMissingError:
            return None

    def _age_s(self, name: str) -> float | None:
        try:
            with self._translated(name):
                found = self._client.stat_object(bucket_name=self.config.bucket, object_name=name)
        except ObjectMissingError:
            return None
        return None if found.last_modified is None else time.time() - found.last_modified.timestamp()

    def _delete(self, name: str) -> None:
        with self._translated(name):
            self._client.remove_object(bucket_name=self.config.bucket, object_name=name)

    def _page(self, found: Iterator[object]) -> list[str]:
        with self._translated(self._prefix):
            return [str(item.object_name) for item in islice(found, _PAGE)]  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        where = f"{name!r} in bucket {self.config.bucket!r} at {self.config.endpoint}"
        try:
            yield
        except S3Error as error:
            if error.code in _MISSING:
                raise ObjectMissingError(f"no object {where}", key=name) from error
            if error.code in _PASSING:
                raise StoreUnavailableError(f"{where}: the server answers {error.code}", key=name) from error
            raise StoreError(
                f"{where}: refused with {error.code} ({error.message}); check keys and policy", key=name
            ) from error
        except ServerError as error:
            raise StoreUnavailableError(f"{where}: HTTP {error.status_code}", key=name) from error
        except InvalidResponseError as error:
            # A page instead of XML is what a load balancer says when the store behind it does not answer.
            raise StoreUnavailableError(f"{where}: not an answer of S3 ({str(error)[:100]})", key=name) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StoreUnavailableError(f"{where}: no answer from the server ({error})", key=name) from error
        except (MinioException, ValueError) as error:
            raise StoreError(f"{where}: {error}", key=name) from error
