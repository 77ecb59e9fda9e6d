"""Media in the object store, once per content."""

from __future__ import annotations

import asyncio

from bus.contracts import MediaRef
from bus.contracts.codec import digest
from bus.errors import InvalidInputError, MediaTooLargeError, ObjectCorruptError
from bus.ports import ObjectStore
from bus.store.once import put_once

_HASH_INLINE_NBYTES = 256 * 1024


async def save_media(store: ObjectStore, data: bytes, media_type: str, name: str | None = None) -> MediaRef:
    """Keep the bytes at `media/<digest>`, unless they are there already.

    Args:
        store: Where to.
        data: The media as it came.
        media_type: Its MIME type.
        name: The file name that the sender gave.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
    """
    content = await _digest(data)
    key = media_key(content)
    await put_once(store, key, data)
    return MediaRef(digest=content, nbytes=len(data), media_type=media_type, key=key, name=name)


async def load_media(store: ObjectStore, ref: MediaRef, max_bytes: int) -> bytes:
    """The bytes that the reference names, checked against its digest.

    Args:
        store: Where from.
        ref: What to read; a client may have written it, so nothing in it is trusted.
        max_bytes: The most that is read into memory.

    Raises:
        MediaTooLargeError: The object has more bytes than that.
        ObjectMissingError: It is not there (any more).
        ObjectCorruptError: It is not what the reference says.
        InvalidInputError: A reference that no store has given.
        StoreUnavailableError: (retryable) the store does not answer.
    """
    if ref.key != media_key(ref.digest):
        # Not even its digest is told: whoever knew it could have any object of the store as media.
        raise InvalidInputError(
            f"the reference is none that a store has given: its key is {ref.key[:100]!r}, not "
            f"{media_key(ref.digest[:64])!r}; send the media again"
        )
    stored = await store.nbytes(ref.key)
    nbytes = ref.nbytes if stored is None else max(stored, ref.nbytes)
    if nbytes > max_bytes:
        raise MediaTooLargeError(
            f"{ref.name or ref.key} has {nbytes} bytes; at most {max_bytes} are read",
            nbytes=nbytes,
            limit=max_bytes,
        )
    data = await store.get(ref.key)
    found = await _digest(data)
    if found != ref.digest:
        raise ObjectCorruptError(
            f"object {ref.key!r} has digest {found}, not {ref.digest}; send the media again", key=ref.key
        )
    return data


def media_key(content: str) -> str:
    """Where media of a digest are in the object store."""
    return f"media/{content}"


async def _digest(data: bytes) -> str:
    # BLAKE3 of 256 KiB takes less than the hop to a thread and back.
    return digest(data) if len(data) <= _HASH_INLINE_NBYTES else await asyncio.to_thread(digest, data)
