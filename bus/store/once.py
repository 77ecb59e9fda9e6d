"""Content-addressed objects: written once, and again when they are about to grow too old."""

from __future__ import annotations

from bus.ports import ObjectStore

KEEP_S = 8 * 86_400.0
"""Objects are removed after this long; longer than anything on the bus may refer to them (dead letters: 7 days)."""

REFRESH_S = 86_400.0
"""An object older than this is written again when somebody makes it again, and so kept from its removal."""

PREFIXES = ("tensors/", "media/", "requests/")
"""Where objects are that grow too old: by content, and what was asked with them."""


async def put_once(store: ObjectStore, key: str, data: bytes | memoryview) -> None:
    """Write an object whose key names its content, unless it is there and young.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
    """
    age_s = await store.age_s(key)
    if age_s is None or age_s > REFRESH_S:
        await store.put(key, data)


async def expire(store: ObjectStore, keep_s: float = KEEP_S) -> int:
    """Remove every content-addressed object that nobody has made for so long; returns how many.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
    """
    return sum([await store.expire(prefix, keep_s) for prefix in PREFIXES])
