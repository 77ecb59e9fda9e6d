"""Where objects are, as one URL: `file:///folder` or `s3://bucket/prefix?endpoint=…`.

The S3 client is imported only here, and only for `s3://`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from bus.store.directory import DirectoryObjectStore

if TYPE_CHECKING:
    from bus.store.bucket import S3Bucket, S3Config

_S3_OPTIONS = {"endpoint", "region", "secure"}


def open_store(url: str, *, access_key: str = "", secret_key: str = "") -> ObjectStore:
    """The store at the URL, to be entered with `async with`.

    `s3://bucket/prefix?endpoint=http://host:9000&region=eu-1`; an endpoint without a scheme speaks TLS
    unless `secure=false`.

    Args:
        url: Where the objects are.
        access_key: For S3; credentials are never a part of the URL.
        secret_key: For S3.

    Raises:
        InvalidInputError: A URL that names no store.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path not in ("", "/"):
        return DirectoryObjectStore(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc:
        return _s3(url, parts, access_key, secret_key)
    raise InvalidInputError(
        f"object store {parts.scheme}://{parts.hostname or ''}{parts.path} is not known; "
        "use file:///folder or s3://bucket?endpoint=http://host:9000, with the keys beside it"
    )


def open_bucket(url: str, *, access_key: str = "", secret_key: str = "") -> S3Bucket:
    """The bucket at an `s3://` URL, for calls that wait; nothing is asked of it yet.

    Args:
        url: As for `open_store`.
        access_key: Credentials are never a part of the URL.
        secret_key: Beside it.

    Raises:
        InvalidInputError: A URL that names no bucket.
    """
    from bus.store.bucket import S3Bucket

    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc:
        raise InvalidInputError(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path} is no bucket; "
            "use s3://bucket/prefix?endpoint=http://host:9000, with the keys beside it"
        )
    return S3Bucket(_config(url, parts, access_key, secret_key))


def _s3(url: str, parts: SplitResult, access_key: str, secret_key: str) -> ObjectStore:
    from bus.store.s3 import S3ObjectStore

    return S3ObjectStore(_config(url, parts, access_key, secret_key))


def _config(url: str, parts: SplitResult, access_key: str, secret_key: str) -> S3Config:
    from bus.store.bucket import S3Config

    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = set(options) - _S3_OPTIONS
    if unknown:
        raise InvalidInputError(
            f"object store {url!r} has the options {', '.join(sorted(unknown))}; "
            f"{', '.join(sorted(_S3_OPTIONS))} are known"
        )
    scheme, _, host = options.get("endpoint", "s3.amazonaws.com").rpartition("://")
    return S3Config(
        bucket=parts.netloc,
        endpoint=host.rstrip("/"),
        access_key=access_key,
        secret_key=secret_key,
        secure=scheme != "http" and options.get("secure", "true").lower() not in ("false", "0", "no"),
        region=options.get("region", "us-east-1"),
        prefix=parts.path,
    )
