"""Bytes by digest in the memory that all processes of a host share."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import stat
import tempfile
import time
from pathlib import Path

from bus.errors import InvalidInputError, StackConfigError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PENDING = ".pending-"
_STALE_S = 60.0


def shared_memory_root() -> Path:
    """`/dev/shm` where there is one, else the folder for temporary files (macOS), whose cache is as good."""
    root = Path("/dev/shm")
    return root if root.is_dir() and os.access(root, os.W_OK) else Path(tempfile.gettempdir())


class SharedMemory:
    """One file per digest, written once by a rename and mapped read-only by every reader.

    Any number of processes use one folder without a lock: a name is the digest of its content, so writers
    of the same content cannot disagree. Over the budget, the files that were used longest ago go; whoever
    has one mapped keeps its pages until the mapping is dropped. What is here is a copy: losing it costs time.
    """

    def __init__(self, directory: Path | str, budget_nbytes: int) -> None:
        """Shared memory in `directory`, which is created by the first write.

        Args:
            directory: A folder on tmpfs, one per stack.
            budget_nbytes: The most that all processes together keep there.

        Raises:
            InvalidInputError: A budget of nothing.
        """
        if budget_nbytes <= 0:
            raise InvalidInputError(f"a budget of {budget_nbytes} bytes keeps nothing; give more than 0")
        self.directory = Path(directory)
        self.budget_nbytes = budget_nbytes
        self._unscanned_nbytes = budget_nbytes

    def open(self) -> None:
        """Create the folder for this user alone.

        Raises:
            StackConfigError: It belongs to somebody else, or cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not what a link points to: anybody may make one in a shared folder, to a folder of ours.
            found = self.directory.lstat()
        except OSError as error:
            raise StackConfigError(
                f"cannot make {self.directory} for tensors: {error.strerror or error}; choose another folder"
            ) from error
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
            raise StackConfigError(
                f"{self.directory} is a link or belongs to user {found.st_uid}, who could change tensors; "
                "choose another folder"
            )

    def write(self, digest: str, data: memoryview) -> bool:
        """Keep the bytes under their digest.

        Args:
            digest: BLAKE3 of the data, hex; the caller has computed it.
            data: C-contiguous bytes.

        Returns:
            Whether they are there now; False when they exceed the budget or the host has no memory left.
        """
        path = self._path(digest)
        if len(data) > self.budget_nbytes:
            return False
        with contextlib.suppress(OSError):
            if path.stat().st_size == len(data):
                os.utime(path)
                return True
        self._make_room(len(data))
        temporary = self.directory / f"{_PENDING}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._write(temporary, data)
            temporary.replace(path)
        except OSError:
            # Full or swept: the tensor plane goes on with the object store alone.
            self._unscanned_nbytes = self.budget_nbytes
            return False
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        return True

    def read(self, digest: str, nbytes: int) -> memoryview | None:
        """The bytes of the digest, mapped read-only; None when they are not here.

        The mapping lives as long as the view or an array over it; its descriptor goes with it.

        Args:
            digest: BLAKE3 of the data, hex.
            nbytes: How many bytes there must be; a file of another size is removed.
        """
        path = self._path(digest)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if os.fstat(descriptor).st_size != nbytes:
                path.unlink(missing_ok=True)
                return None
            # The time of the last use, for the budget; reading through a mapping does not set it.
            os.utime(descriptor)
            return memoryview(mmap.mmap(descriptor, nbytes, prot=mmap.PROT_READ))
        finally:
            os.close(descriptor)

    def used_nbytes(self) -> int:
        """Bytes that all processes together keep, unfinished writes included."""
        return sum(size for _, size, _ in self._files())

    def sweep(self) -> None:
        """Remove every entry, and the folder when nothing else is in it; for a stack that has stopped."""
        for _, _, path in self._files():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _path(self, digest: str) -> Path:
        # A digest may come out of a client's message: it must not be able to name another file.
        if not _DIGEST.fullmatch(digest):
            raise InvalidInputError(f"a digest is 64 hexadecimal digits, not {digest[:80]!r}")
        return self.directory / digest

    def _write(self, path: Path, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o400)
        except FileNotFoundError:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, flags, 0o400)
        try:
            # write() lets the kernel fill fresh pages in one go; a mapping would fault on each of them.
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)

    def _make_room(self, nbytes: int) -> None:
        # Listing the folder costs a stat per file, so it waits until this process has written 1/32.
        self._unscanned_nbytes += nbytes
        if self._unscanned_nbytes * 32 < self.budget_nbytes:
            return
        self._unscanned_nbytes = 0
        files = sorted(self._files())
        used = sum(size for _, size, _ in files)
        for used_s, size, path in files:
            unfinished = path.name.startswith(_PENDING)
            if unfinished and time.time() - used_s < _STALE_S:
                continue
            if used + nbytes <= self.budget_nbytes and not unfinished:
                continue
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                used -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Last use, size and path of every entry; whatever else lies in the folder is not ours."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                if not (entry.name.startswith(_PENDING) or _DIGEST.fullmatch(entry.name)):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, Path(entry.path)))
        return found
