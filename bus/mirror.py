"""What is in a bucket, kept in this process, so that asking costs nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from bus.ports import KeyValue, Subscription


class Mirror(ABC):
    """Is told of every entry of a bucket and of every later change. Use as a context manager.

    Args:
        bucket: What is mirrored.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket
        self._watch: Subscription | None = None

    async def __aenter__(self) -> Self:
        """Begin; what is there is known when this returns.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        self._watch = await self._bucket.watch(self._on_change)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what is known stays known. Closing twice is fine."""
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()

    @abstractmethod
    def _on_change(self, key: str, value: bytes | None) -> None:
        """An entry is there, or has changed; None: it was removed. Entries that expire go without a word."""
