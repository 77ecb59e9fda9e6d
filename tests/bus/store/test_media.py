from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from blake3 import blake3

from bus.contracts import MediaRef
from bus.errors import InvalidInputError, MediaTooLargeError, ObjectMissingError
from bus.store.directory import DirectoryObjectStore
from bus.store.media import load_media, save_media

_LIMIT = 1024


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryObjectStore]:
    async with DirectoryObjectStore(tmp_path) as opened:
        yield opened


async def test_media_is_named_by_its_content(store: DirectoryObjectStore) -> None:
    ref = await save_media(store, b"RIFF....", "audio/wav", name="question.wav")
    digest = blake3(b"RIFF....").hexdigest()
    assert ref == MediaRef(digest=digest, nbytes=8, media_type="audio/wav", key=f"media/{digest}", name="question.wav")
    assert await load_media(store, ref, _LIMIT) == b"RIFF...."


async def test_the_same_content_is_stored_once(store: DirectoryObjectStore) -> None:
    first = await save_media(store, b"same", "image/png", name="a.png")
    path = next(path for path in store.root.rglob(first.digest))
    written_ns = path.stat().st_mtime_ns
    second = await save_media(store, b"same", "image/png", name="b.png")
    assert second.key == first.key
    assert path.stat().st_mtime_ns == written_ns


async def test_media_over_the_limit_is_refused_before_it_is_read(store: DirectoryObjectStore) -> None:
    ref = await save_media(store, b"x" * (_LIMIT + 1), "image/png")
    with pytest.raises(MediaTooLargeError, match="1025"):
        await load_media(store, ref, _LIMIT)


async def test_a_reference_that_lies_about_its_size_is_refused_too(store: DirectoryObjectStore) -> None:
    ref = await save_media(store, b"x" * (_LIMIT + 1), "image/png")
    with pytest.raises(MediaTooLargeError):
        await load_media(store, ref.model_copy(update={"nbytes": 1}), _LIMIT)


async def test_a_reference_to_another_object_is_refused(store: DirectoryObjectStore) -> None:
    await store.put("plans/secret", b"not media")
    ref = await save_media(store, b"mine", "image/png")
    told: list[str] = []
    for known in (ref.digest, blake3(b"not media").hexdigest()):
        with pytest.raises(InvalidInputError, match="plans/secret") as caught:
            await load_media(store, ref.model_copy(update={"key": "plans/secret", "digest": known}), _LIMIT)
        told.append(str(caught.value))
    assert blake3(b"not media").hexdigest() not in told[0]


async def test_a_reference_to_nothing_is_a_missing_object(store: DirectoryObjectStore) -> None:
    ref = await save_media(store, b"mine", "image/png")
    await store.delete(ref.key)
    with pytest.raises(ObjectMissingError):
        await load_media(store, ref, _LIMIT)
