"""Requests that nobody waits for any more."""

from __future__ import annotations

from bus.mirror import Mirror
from bus.ports import KeyValue

MOST_REMEMBERED = 10_000
"""Tombstones that a process keeps in mind; the oldest go first."""


_FAILED = "failed in "


class Cancellations(Mirror):
    """The cancel tombstones, mirrored from the bus so that asking costs nothing. Use as a context manager."""

    def __init__(self, bucket: KeyValue) -> None:
        super().__init__(bucket)
        self._cancelled: dict[str, str] = {}

    def __contains__(self, request: str) -> bool:
        return request in self._cancelled

    async def cancel(self, request: str, reason: str) -> None:
        """Tell every worker that nobody waits for this request."""
        self._remember(request, reason)
        await self._bucket.put(request, reason.encode())

    async def fail(self, request: str, stage: str) -> None:
        """Tell every worker that the request has failed for good: its other branches work for nobody."""
        await self.cancel(request, _FAILED + stage)

    def has_failed(self, request: str) -> bool:
        """Whether the request ended because one of its stages failed."""
        return self._cancelled.get(request, "").startswith(_FAILED)

    async def withdraw(self, request: str) -> None:
        """Somebody waits again: a dead letter of the request is replayed."""
        await self._bucket.delete(request)

    def _on_change(self, request: str, reason: bytes | None) -> None:
        if reason is None:
            self._cancelled.pop(request, None)
        else:
            self._remember(request, reason.decode(errors="replace"))

    def _remember(self, request: str, reason: str) -> None:
        self._cancelled[request] = reason
        while len(self._cancelled) > MOST_REMEMBERED:  # tombstones expire on the bus without a word
            del self._cancelled[next(iter(self._cancelled))]
