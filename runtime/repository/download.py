"""One file over HTTP: by ranges, resumed where it broke off, checked against its digest, never half published."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bus.errors import EngineError, ModelCorruptError
from runtime.repository.durable import sync
from runtime.repository.lock import exclusive
from runtime.repository.partfile import PENDING, PartFile
from runtime.repository.progress import OnBytes, silent
from runtime.repository.ranges import TransferConfig
from runtime.repository.transfer import Transfer, shown

if TYPE_CHECKING:
    import httpx

_LEFT_S = 7 * 86_400.0


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(
    url: str,
    target: Path,
    *,
    client: httpx.Client,
    sha256: str | None = None,
    nbytes: int | None = None,
    headers: Mapping[str, str] | None = None,
    config: TransferConfig | None = None,
    on_bytes: OnBytes = silent,
) -> Path:
    """Bring a URL to a file, unless it is there already and whole.

    What was read before an interruption lies in `<target>.part` and is gone on with as long as the file is the same.
    Two processes that want the same file wait for each other.

    Raises:
        ModelSourceError: (retryable unless the server refused) the source does not answer.
        ModelCorruptError: The bytes do not match the digest, twice, or there are not `nbytes` of them.
        EngineError: It cannot be written; what was read of it is removed where there is no room for it.
    """
    config = config or TransferConfig()
    part = PartFile(target, config.part_nbytes)
    transfer = Transfer(
        url, part, client, name=target.name, config=config, headers=dict(headers or {}),
        checked=sha256 is not None, nbytes=nbytes, on_bytes=on_bytes,
    )  # fmt: skip
    try:
        with exclusive(target.with_name(f".{target.name}.lock")), part:
            if target.exists() and (sha256 is None or sha256_of(target) == sha256):
                part.discard()  # of another pull, which ended between its rename and this
            else:
                _bring(transfer, part, url, sha256)
                part.publish(target)
                sync(target.parent)
            return target
    except OSError as error:
        raise _unwritable(target, error) from error


def sweep(downloads: Path) -> None:
    """Remove what was begun and left a week ago; nobody will go on with it."""
    for path in downloads.rglob(f"*{PENDING[0]}") if downloads.is_dir() else ():
        with suppress(OSError):  # another one may be at it, or the folder read-only
            if time.time() - path.stat().st_mtime > _LEFT_S:
                PartFile(path.with_suffix(""), 1).discard()


def _bring(transfer: Transfer, part: PartFile, url: str, sha256: str | None) -> None:
    for last in (False, True):
        transfer.run()
        found = None if sha256 is None else sha256_of(part.path)
        if found == sha256:
            return
        # Parts of another file, or a damaged one: a fresh start tells a bad part from a bad source.
        part.discard()
        if last:
            raise ModelCorruptError(
                f"{shown(url)} has sha256 {found}, expected {sha256}; the source changed or is damaged", url=shown(url)
            )


def _unwritable(target: Path, error: OSError) -> EngineError:
    free = f", {shutil.disk_usage(target.parent).free / 1e6:.0f} MB are free" if target.parent.is_dir() else ""
    return EngineError(
        f"{target.name} cannot be written to {target.parent}: {error.strerror or error}{free}; "
        "make room there, or set OMNIBUS_MODELS to another folder, whose neighbour keeps downloads",
        file=target.name,
    )
