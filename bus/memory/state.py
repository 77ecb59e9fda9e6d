"""KV buckets in memory, with compare-and-set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bus.errors import ConflictError

OnChange = Callable[[str, bytes | None], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    revision: int
    written_s: float


class MemorySubscription:
    """Something that is being listened to."""

    def __init__(self, stop: Callable[[], None]) -> None:
        """A subscription that `stop` ends."""
        self._stop = stop

    async def close(self) -> None:
        """Stop; closing twice is fine."""
        self._stop()


class MemoryKeyValue:
    """One bucket; entries vanish after its time to live, and nobody who watches is told, as in JetStream."""

    def __init__(self, name: str, ttl_s: float) -> None:
        """An empty bucket; a `ttl_s` of 0 keeps entries for ever."""
        self._name = name
        self._ttl_s = ttl_s
        self._entries: dict[str, _Entry] = {}
        self._revision = 0
        self._watchers: list[OnChange] = []

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision; None when there is none."""
        entry = self._live(key)
        return None if entry is None else (entry.value, entry.revision)

    async def put(self, key: str, value: bytes) -> int:
        """Write whatever was there; returns the revision."""
        self._revision += 1
        self._entries[key] = _Entry(bytes(value), self._revision, time.time())
        self._tell(key, value)
        return self._revision

    async def create(self, key: str, value: bytes) -> int:
        """Write when nothing is there.

        Raises:
            ConflictError: (retryable) something is.
        """
        if self._live(key) is not None:
            raise ConflictError(f"{self._name}/{key} is there already", key=key)
        return await self.put(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write when the revision is still this one; 0 means that nothing is there.

        Raises:
            ConflictError: (retryable) it is not.
        """
        entry = self._live(key)
        if (entry.revision if entry else 0) != revision:
            raise ConflictError(f"{self._name}/{key} was changed by somebody else", key=key)
        return await self.put(key, value)

    async def delete(self, key: str) -> None:
        """Remove the key."""
        if self._entries.pop(key, None) is not None:
            self._revision += 1
            self._tell(key, None)

    async def entries(self) -> dict[str, bytes]:
        """Every key with its value."""
        return {key: entry.value for key in sorted(self._entries) if (entry := self._live(key)) is not None}

    async def watch(self, on_change: OnChange) -> MemorySubscription:
        """Call back for every present entry and every later change; None is a removal."""
        for key, value in (await self.entries()).items():
            on_change(key, value)

        def stop() -> None:
            if on_change in self._watchers:
                self._watchers.remove(on_change)

        self._watchers.append(on_change)
        return MemorySubscription(stop)

    def _live(self, key: str) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and self._ttl_s and time.time() - entry.written_s > self._ttl_s:
            del self._entries[key]
            return None
        return entry

    def _tell(self, key: str, value: bytes | None) -> None:
        loop = asyncio.get_running_loop()
        for watcher in self._watchers:
            # Later, so that whoever writes is never run into by whoever watches.
            loop.call_soon(watcher, key, value)
