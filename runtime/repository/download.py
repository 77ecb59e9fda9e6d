"""One file over HTTP: resumed where it broke off, checked against its digest, never half published."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bus.errors import ModelCorruptError, ModelSourceError
from runtime.repository.lock import exclusive
from runtime.repository.progress import OnBytes, silent

if TYPE_CHECKING:
    import httpx

_TRIES_WITHOUT_PROGRESS = 4
_FINAL = frozenset({400, 401, 403, 404, 410, 451})


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shown(url: str) -> str:
    """A URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def download(
    url: str,
    target: Path,
    *,
    client: httpx.Client,
    sha256: str | None = None,
    headers: Mapping[str, str] | None = None,
    on_bytes: OnBytes = silent,
) -> Path:
    """Bring a URL to a file, unless it is there already and whole.

    What was downloaded before an interruption lies in `<target>.part` and is continued. Two processes that
    want the same file wait for each other.

    Raises:
        ModelSourceError: (retryable unless the server refused) the source does not answer.
        ModelCorruptError: The bytes do not match the digest, twice.
    """
    with exclusive(target.with_name(f".{target.name}.lock")):
        if target.exists() and (sha256 is None or sha256_of(target) == sha256):
            return target
        part = target.with_name(f"{target.name}.part")
        for last in (False, True):
            _complete(url, part, client, dict(headers or {}), target.name, on_bytes)
            found = sha256_of(part)
            if sha256 in (None, found):
                part.replace(target)
                return target
            # A part of another file, or a damaged one: a fresh start tells a bad part from a bad source.
            part.unlink()
            if last:
                raise ModelCorruptError(
                    f"{shown(url)} has sha256 {found}, expected {sha256}; the source changed or is damaged",
                    url=shown(url),
                )
    raise AssertionError("unreachable")  # pragma: no cover


def _complete(
    url: str, part: Path, client: httpx.Client, headers: dict[str, str], name: str, on_bytes: OnBytes
) -> None:
    import httpx

    tries = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, before, client, headers, name, on_bytes)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            if status in _FINAL:
                raise ModelSourceError(f"{shown(url)} answers {status}", retryable=False, url=shown(url)) from error
            failure: Exception = error
        except httpx.HTTPError as error:
            failure = error
        else:
            return
        progressed = part.exists() and part.stat().st_size > before
        tries = 0 if progressed else tries + 1
        if tries >= _TRIES_WITHOUT_PROGRESS:
            raise ModelSourceError(
                f"{shown(url)} could not be read: {failure or type(failure).__name__}; "
                f"pull again to go on from {before} bytes",
                url=shown(url),
            ) from failure
        time.sleep(0.2 * 2**tries)


def _continue(
    url: str,
    part: Path,
    start: int,
    client: httpx.Client,
    headers: dict[str, str],
    name: str,
    on_bytes: OnBytes,
) -> None:
    # A range counts the bytes that are sent, so they are asked for as they are.
    plain = {**headers, "Accept-Encoding": "identity"}
    ranged = {**plain, "Range": f"bytes={start}-"} if start else plain
    with client.stream("GET", url, headers=ranged) as response:
        if response.status_code == 416:  # nothing is left to send: the part is whole, or not of this file
            if response.headers.get("Content-Range") == f"bytes */{start}":
                return
            part.unlink()
            raise _other_file(response)
        response.raise_for_status()
        if response.status_code != 206:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab" if start else "wb") as file:
            # As they come: a larger chunk would be lost with the connection.
            for chunk in response.iter_raw():
                file.write(chunk)
                start += len(chunk)
                on_bytes(name, start, total)


def _other_file(response: httpx.Response) -> Exception:
    import httpx

    return httpx.RemoteProtocolError("the part is longer than the file", request=response.request)
