from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Modality
from bus.errors import InvalidInputError
from bus.store.directory import DirectoryObjectStore
from functions.gateway.inline_media import decode_base64, media_from_url


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryObjectStore]:
    async with DirectoryObjectStore(tmp_path) as opened:
        yield opened


@given(data=st.binary(max_size=200), url_safe=st.booleans(), padded=st.booleans(), wrapped=st.booleans())
async def test_base64_in_any_common_form_is_read(data: bytes, url_safe: bool, padded: bool, wrapped: bool) -> None:
    text = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()
    text = text if padded else text.rstrip("=")
    text = "\r\n".join(text[start : start + 20] for start in range(0, len(text), 20)) if wrapped else text
    assert await decode_base64(text, "x") == data


@pytest.mark.parametrize("text", ["a", "abc$", "ab=c", "日本", "====a"])
async def test_what_is_no_base64_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"messages\.0") as caught:
        await decode_base64(text, "messages.0")
    assert caught.value.details["param"] == "messages.0"


async def test_large_base64_is_read_too(store: DirectoryObjectStore) -> None:
    data = bytes(range(256)) * 4000
    assert await decode_base64(base64.b64encode(data).decode(), "x") == data


@pytest.mark.parametrize(
    ("head", "media_type"),
    [
        ("data:image/png;base64,", "image/png"),
        ("DATA:IMAGE/PNG;BASE64,", "image/png"),
        ("data:audio/ogg;codecs=opus;base64,", "audio/ogg"),
        ("data:image/svg+xml;charset=utf-8;base64,", "image/svg+xml"),
        ("data:;base64,", "application/octet-stream"),
    ],
)
async def test_a_data_url_is_stored_once(store: DirectoryObjectStore, head: str, media_type: str) -> None:
    source = await media_from_url(store, head + base64.b64encode(b"content").decode(), Modality.IMAGE, "x")
    assert source.ref is not None
    assert source.ref.media_type == media_type
    assert await store.get(source.ref.key) == b"content"


async def test_a_data_url_without_base64_is_percent_encoded(store: DirectoryObjectStore) -> None:
    source = await media_from_url(store, "data:image/svg+xml," + quote_from_bytes(b"<svg/>\xff"), Modality.IMAGE, "x")
    assert source.ref is not None
    assert await store.get(source.ref.key) == b"<svg/>\xff"


async def test_a_web_address_is_left_for_the_fetching_stage(store: DirectoryObjectStore) -> None:
    source = await media_from_url(store, "https://example.org/a.png", Modality.IMAGE, "x")
    assert (source.url, source.ref) == ("https://example.org/a.png", None)


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", "ftp://x/y", "data:", "data:image/png", "javascript:x", "/a"]
)
async def test_any_other_address_is_refused(store: DirectoryObjectStore, url: str) -> None:
    with pytest.raises(InvalidInputError, match="http, https or data URL"):
        await media_from_url(store, url, Modality.IMAGE, "x")
