"""Objects in a bucket of any S3, as an `ObjectStore`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from bus.store.bucket import S3Bucket, S3Config

_PAGE = 500
T = TypeVar("T")


class S3ObjectStore:
    """An `ObjectStore` over one bucket; the client is synchronous, so every call runs in a thread."""

    def __init__(self, config: S3Config) -> None:
        """A store that connects on open."""
        self.config = config
        self._bucket = S3Bucket(config)
        self._slots = asyncio.Semaphore(config.connections)

    async def __aenter__(self) -> Self:
        """Create the bucket when it is not there.

        Raises:
            StoreUnavailableError: (retryable) the server does not answer.
            StoreError: It refuses the credentials or the bucket.
        """
        await self._run(self._bucket.ensure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._bucket.close()

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store the bytes; see `ObjectStore.put`."""
        await self._run(lambda: self._bucket.put(key, data))

    async def get(self, key: str) -> bytes:
        """The bytes of the key; see `ObjectStore.get`."""
        return await self._run(lambda: self._bucket.get(key))

    async def nbytes(self, key: str) -> int | None:
        """Size of the object; None when there is none."""
        return await self._run(lambda: self._bucket.nbytes(key))

    async def age_s(self, key: str) -> float | None:
        """Seconds since the object was last written; None when there is none."""
        return await self._run(lambda: self._bucket.age_s(key))

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""
        await self._run(lambda: self._bucket.delete(key))

    async def expire(self, prefix: str, older_than_s: float) -> int:
        """Remove what starts with the prefix and was last written longer ago; returns how many objects."""
        old = [key async for key in self.keys(prefix) if (await self.age_s(key) or 0.0) > older_than_s]
        for key in old:
            await self.delete(key)
        return len(old)

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Every key that starts with the prefix, sorted."""
        found = self._bucket.keys(prefix)
        while True:
            page = await self._run(lambda: list(islice(found, _PAGE)))
            for key in page:
                yield key
            if len(page) < _PAGE:
                return

    async def _run(self, call: Callable[[], T]) -> T:
        async with self._slots:
            return await asyncio.to_thread(call)
