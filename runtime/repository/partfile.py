"""A file that is being brought here: of its full length from the start, filled part by part, in any order."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from runtime.repository.ranges import Identity

_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_CHUNK = 1 << 20

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Numbers of the errors that say that there is no room."""

PENDING = (".part", ".parts")
"""Ends of the names of what is not whole yet: the bytes, and the journal of the parts that are."""


class Piece:
    """A stretch of the file and how far it is.

    Args:
        index: Which part it is.
        start: Its first byte.
        end: The byte behind its last one; None: wherever the file ends.
        whole: Whether it is asked for without a range, as the whole file.

    Attributes:
        position: The byte that is wanted next.
        complete: Whether nothing is missing.
    """

    def __init__(self, index: int, start: int, end: int | None, *, whole: bool = False) -> None:
        self.index, self.start, self.end, self.whole = index, start, end, whole
        self.complete = False
        self.rewind()

    def rewind(self) -> None:
        """Begin again."""
        self.position = self.start
        self.digest = hashlib.sha256()

    def fit(self, chunk: bytes) -> bytes:
        """What of the bytes belongs to it: a server may send more than it was asked for."""
        return chunk if self.end is None else chunk[: self.end - self.position]

    def advance(self, chunk: bytes) -> None:
        """Note bytes that were written."""
        self.digest.update(chunk)
        self.position += len(chunk)
        self.complete = self.position == self.end


class PartFile:
    """`<target>.part`, and `<target>.parts` with the digest of each part that is there.

    What a killed process left is taken up: a part counts when its bytes still have the digest that the journal says, so
    nothing has to be flushed to the disk before the end. Several threads may write at the same time.

    Args:
        target: The name that the file gets when it is whole.
        part_nbytes: Size of a part; a file that was begun keeps its own.
    """

    def __init__(self, target: Path, part_nbytes: int) -> None:
        self.path = target.with_name(f"{target.name}{PENDING[0]}")
        self._journal = target.with_name(f"{target.name}{PENDING[1]}")
        self._chosen_nbytes = self._part_nbytes = part_nbytes
        self._total = 0
        self._file: int | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        """Nothing is opened before it is begun or gone on with."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave what is there to be gone on with; where there is no room for it, remove it."""
        if isinstance(error, OSError) and error.errno in FULL:
            self.discard()
        self._close()

    def resume(self) -> tuple[Identity, Sequence[Piece]] | None:
        """Which file was begun, and what of it is missing; None: nothing that could be gone on with."""
        try:
            head, *lines = self._journal.read_text(encoding="ascii").splitlines()
            begun = json.loads(head)
            identity, self._part_nbytes = Identity.read(begun["file"]), int(begun["part_nbytes"])
            if self.path.stat().st_size != identity.total or self._part_nbytes < 1:
                return None
        except (OSError, ValueError, TypeError, KeyError):
            return None
        self._total = identity.total
        self._file = os.open(self.path, os.O_RDWR)
        done = dict(line.split(" ", 1) for line in lines if " " in line)
        return identity, [piece for piece in self._pieces() if not self._is_there(piece, done)]

    def begin(self, identity: Identity) -> Sequence[Piece]:
        """Make the file, of its full length, so that a disk that cannot hold it is known now.

        Raises:
            OSError: There is no room for it.
        """
        self._part_nbytes = self._chosen_nbytes
        self._make(identity.total)
        head = json.dumps({"file": identity.written(), "part_nbytes": self._part_nbytes})
        self._journal.write_text(head + "\n", encoding="ascii")
        return self._pieces()

    def begin_whole(self, total: int | None) -> None:
        """Make the file for one stream, which cannot be gone on with; None: its length is not known.

        Raises:
            OSError: There is no room for it.
        """
        self._journal.unlink(missing_ok=True)
        self._make(total or 0)

    def write(self, piece: Piece, chunk: bytes) -> None:
        """Put bytes in their place."""
        assert self._file is not None
        rest, at = memoryview(chunk), piece.position
        while rest:
            written = os.pwrite(self._file, rest, at)
            rest, at = rest[written:], at + written
        piece.advance(chunk)

    def finish(self, piece: Piece) -> None:
        """Note in the journal that a part is there."""
        if not piece.whole:
            with self._lock, self._journal.open("a", encoding="ascii") as journal:
                journal.write(f"{piece.index} {piece.digest.hexdigest()}\n")

    def publish(self, target: Path) -> None:
        """Flush the file to the disk and give it its name; what has that name is whole."""
        assert self._file is not None
        os.fsync(self._file)
        self._close()
        self.path.replace(target)
        self._journal.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove it."""
        self._close()
        self.path.unlink(missing_ok=True)
        self._journal.unlink(missing_ok=True)

    def _close(self) -> None:
        handle, self._file = self._file, None
        if handle is not None:
            os.close(handle)

    def _make(self, total: int) -> None:
        self._close()
        self._total = total
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        if total:
            _allocate(self._file, total)

    def _pieces(self) -> Sequence[Piece]:
        starts = range(0, self._total, self._part_nbytes)
        return [Piece(index, start, min(start + self._part_nbytes, self._total)) for index, start in enumerate(starts)]

    def _is_there(self, piece: Piece, done: Mapping[str, str]) -> bool:
        known = done.get(str(piece.index))
        if known is None:
            return False
        assert self._file is not None
        assert piece.end is not None
        digest = hashlib.sha256()
        for at in range(piece.start, piece.end, _CHUNK):
            digest.update(os.pread(self._file, min(_CHUNK, piece.end - at), at))
        return digest.hexdigest() == known


def _allocate(file: int, total: int) -> None:
    """Take the room on the disk now; where the file system cannot, only the length is set."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, total)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
        else:
            return
    os.ftruncate(file, total)
