"""A bucket of any S3 (MinIO, RustFS, Ceph, AWS), call by call, from any thread.

Importing this loads the `minio` client, which takes 0.2 s; `bus.store.location` imports it only for `s3://`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from bus.errors import ObjectMissingError, StoreError, StoreUnavailableError
from bus.store.keys import check_key

_MISSING = frozenset({"NoSuchKey", "NoSuchObject"})
_PASSING = frozenset({"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"})
_SIGNED = timedelta(hours=12)


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


class S3Bucket:
    """The objects below a prefix of a bucket. All calls wait for the server, and raise what `bus.errors` has for it.

    Every call may raise:
        ObjectMissingError: No such object or bucket.
        StoreUnavailableError: (retryable) the server does not answer.
        StoreError: It refuses the credentials, the bucket or the key.
        InvalidInputError: A key that cannot be one.

    Args:
        config: Where it is.
    """

    def __init__(self, config: S3Config) -> None:
        self.config = config
        self._prefix = f"{config.prefix.strip('/')}/" if config.prefix.strip("/") else ""
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

    def ensure(self) -> None:
        """Create the bucket when it is not there."""
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

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store the bytes."""
        with self._translated(key):
            self._client.put_object(
                bucket_name=self.config.bucket, object_name=self.name(key), data=BytesIO(data), length=len(data)
            )

    def put_file(self, key: str, path: Path) -> None:
        """Store a file, several pieces at a time where it is large; it is never in memory as a whole."""
        with self._translated(key):
            self._client.fput_object(bucket_name=self.config.bucket, object_name=self.name(key), file_path=str(path))

    def get(self, key: str) -> bytes:
        """The bytes of the key."""
        with self._translated(key):
            response = self._client.get_object(bucket_name=self.config.bucket, object_name=self.name(key))
            try:
                return bytes(response.read())
            finally:
                response.close()
                response.release_conn()

    def signed_url(self, key: str) -> str:
        """A URL that answers with the object, or ranges of it, for twelve hours, without any other credentials."""
        with self._translated(key):
            return self._client.presigned_get_object(
                bucket_name=self.config.bucket, object_name=self.name(key), expires=_SIGNED
            )

    def nbytes(self, key: str) -> int | None:
        """Size of the object; None when there is none."""
        try:
            with self._translated(key):
                return self._client.stat_object(bucket_name=self.config.bucket, object_name=self.name(key)).size
        except ObjectMissingError:
            return None

    def age_s(self, key: str) -> float | None:
        """Seconds since the object was last written; None when there is none."""
        try:
            with self._translated(key):
                found = self._client.stat_object(bucket_name=self.config.bucket, object_name=self.name(key))
        except ObjectMissingError:
            return None
        return None if found.last_modified is None else time.time() - found.last_modified.timestamp()

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""
        with self._translated(key):
            self._client.remove_object(bucket_name=self.config.bucket, object_name=self.name(key))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Every key that starts with the prefix, sorted; waits for the server once a thousand of them."""
        found = self._client.list_objects(bucket_name=self.config.bucket, prefix=self._prefix + prefix, recursive=True)
        while True:
            with self._translated(self._prefix + prefix):
                item = next(found, None)
            if item is None:
                return
            yield str(item.object_name).removeprefix(self._prefix)

    def name(self, key: str) -> str:
        """What a key is called in the bucket."""
        return self._prefix + check_key(key)

    @contextlib.contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        where = f"{key!r} in bucket {self.config.bucket!r} at {self.config.endpoint}"
        try:
            yield
        except S3Error as error:
            if error.code == "NoSuchBucket":
                raise ObjectMissingError(
                    f"no bucket {self.config.bucket!r} at {self.config.endpoint}; make it, or name one that is there",
                    key=key,
                ) from error
            if error.code in _MISSING:
                raise ObjectMissingError(f"no object {where}", key=key) from error
            if error.code in _PASSING:
                raise StoreUnavailableError(f"{where}: the server answers {error.code}", key=key) from error
            raise StoreError(
                f"{where}: refused with {error.code} ({error.message}); check keys and policy", key=key
            ) from error
        except ServerError as error:
            raise StoreUnavailableError(f"{where}: HTTP {error.status_code}", key=key) from error
        except InvalidResponseError as error:
            # A page instead of XML is what a load balancer says when the store behind it does not answer.
            raise StoreUnavailableError(f"{where}: not an answer of S3 ({str(error)[:100]})", key=key) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StoreUnavailableError(f"{where}: no answer from the server ({error})", key=key) from error
        except (MinioException, ValueError) as error:
            raise StoreError(f"{where}: {error}", key=key) from error
