"""Objects as files in a folder: the embedded default."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote
from zlib import crc32

from bus.errors import ObjectMissingError, StoreUnavailableError
from bus.store.keys import check_key

_PENDING = ".pending"
_STALE_S = 3600.0


class DirectoryObjectStore:
    """An `ObjectStore` over one folder.

    `media/<digest>` lies in `media/~5c/<digest>`: the shard keeps folders small, and its `~`, which never
    begins a quoted part, lets `a` and `a/b` be objects at the same time. A write is a temporary file that
    is renamed, so that a reader, or a process killed at any instant, sees the whole object or none. There
    is no fsync: an object that a power cut damaged does not match its digest, and whoever reads it notices.
    """

    def __init__(self, root: Path | str) -> None:
        """A store over `root`, which is created on open.

        Args:
            root: The folder; it may be shared by any number of processes of one host.
        """
        self.root = Path(root)
        self._pending = self.root / _PENDING

    async def __aenter__(self) -> Self:
        """Create the folder and remove what killed writers left.

        Raises:
            StoreUnavailableError: (retryable) the folder cannot be written.
        """
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open."""

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store the bytes; see `ObjectStore.put`."""
        await asyncio.to_thread(self._write, self._path(key), data)

    async def get(self, key: str) -> bytes:
        """The bytes of the key; see `ObjectStore.get`."""
        return await asyncio.to_thread(self._read, key, self._path(key))

    async def nbytes(self, key: str) -> int | None:
        """Size of the object; None when there is none."""
        return await asyncio.to_thread(_size, self._path(key))

    async def age_s(self, key: str) -> float | None:
        """Seconds since the object was last written; None when there is none."""
        return await asyncio.to_thread(_age_s, self._path(key))

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""
        path = self._path(key)
        with _translated("delete", path):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def expire(self, prefix: str, older_than_s: float) -> int:
        """Remove what starts with the prefix and was last written longer ago; returns how many objects."""
        return await asyncio.to_thread(self._expire, prefix, older_than_s)

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Every key that starts with the prefix, sorted."""
        found = await asyncio.to_thread(lambda: sorted(self._walk(prefix)))
        for key in found:
            yield key

    def _open(self) -> None:
        with _translated("open", self.root):
            self._pending.mkdir(parents=True, exist_ok=True)
            for path in self._pending.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > _STALE_S:
                        path.unlink()

    def _path(self, key: str) -> Path:
        parts = [quote(part, safe="").replace("~", "%7E") for part in check_key(key).split("/")]
        # A leading dot is the store's own folder for unfinished writes.
        parts = [f"%2E{part[1:]}" if part.startswith(".") else part for part in parts]
        shard = f"~{crc32(parts[-1].encode()) & 0xFF:02x}"
        return self.root.joinpath(*parts[:-1], shard, parts[-1])

    def _write(self, path: Path, data: bytes | memoryview) -> None:
        temporary = self._pending / f"{os.getpid()}-{secrets.token_hex(8)}"
        with _translated("write", path):
            try:
                _write_file(temporary, data)
                try:
                    temporary.replace(path)
                except FileNotFoundError:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _read(self, key: str, path: Path) -> bytes:
        with _translated("read", path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError) as error:
                raise ObjectMissingError(f"no object {key!r} in the store", key=key) from error

    def _expire(self, prefix: str, older_than_s: float) -> int:
        removed = 0
        for key in self._walk(prefix):
            path = self._path(key)
            age_s = _age_s(path)
            if age_s is not None and age_s > older_than_s:
                with _translated("delete", path):
                    path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _walk(self, prefix: str) -> Iterator[str]:
        folder, _, _ = prefix.rpartition("/")
        start = self._path(f"{folder}/x").parent.parent if folder else self.root
        for where, folders, files in os.walk(start):
            if _PENDING in folders:
                folders.remove(_PENDING)
            shard = Path(where)
            if not shard.name.startswith("~"):
                continue
            base = [unquote(part) for part in shard.parent.relative_to(self.root).parts]
            for name in files:
                key = "/".join([*base, unquote(name)])
                if key.startswith(prefix):
                    yield key


def _write_file(path: Path, data: bytes | memoryview) -> None:
    try:
        path.write_bytes(data)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def _age_s(path: Path) -> float | None:
    try:
        return time.time() - path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextlib.contextmanager
def _translated(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot {action} {path}: {error.strerror or error}; check that the folder is there, writable and not full",
            path=str(path),
        ) from error
