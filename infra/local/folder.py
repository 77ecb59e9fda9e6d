"""The data folder of an embedded stack: one stack at a time, and how others find it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.errors import StackConfigError


@dataclass(frozen=True, kw_only=True)
class StackInfo:
    """What a running stack tells in `stack.json`; readable by its owner only.

    Attributes:
        pid: Of the stack.
        gateway_url: Where HTTP clients go.
        nats_url: Where bus clients go.
        nats_token: Their token.
        store_url: The object store.
        tensors: Folder of the shared tensors.
    """

    pid: int
    gateway_url: str
    nats_url: str
    nats_token: str = field(repr=False)
    store_url: str
    tensors: str


class DataFolder:
    """Holds the folder's lock while it is open. Use as a context manager.

    The lock is the kernel's (flock): it cannot be left behind by a stack that was killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Make the folder and lock it.

        Raises:
            StackConfigError: It cannot be written, or another stack runs in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StackConfigError(
                f"the data folder {self.path} cannot be used: {error.strerror}; set OMNIBUS_DATA to a folder of yours"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            self._lock = None
            raise StackConfigError(
                f"a stack (process {holder}) already runs in {self.path}; "
                "stop it, use it, or set OMNIBUS_DATA to another folder",
                pid=holder,
            ) from error
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock the folder; what is in it stays."""
        if self._lock is not None:
            (self.path / "stack.json").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return self._sub("logs")

    @property
    def jetstream(self) -> Path:
        """Folder of the bus."""
        return self._sub("jetstream")

    def publish(self, info: StackInfo) -> None:
        """Tell others how to reach the stack."""
        path = self.path / "stack.json"
        draft = path.with_suffix(".tmp")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(info), file)
        draft.rename(path)

    def _sub(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder


def find_stack(path: Path) -> StackInfo | None:
    """The stack that runs in a data folder; None when there is none."""
    try:
        lock = os.open(path / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return StackInfo(**json.loads((path / "stack.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None  # it is just starting
    finally:
        os.close(lock)
    return None
