"""Media inside a request's body: base64 and `data:` URLs, stored once and passed on by reference."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from bus.contracts import MediaSource, Modality
from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from bus.store.media import save_media

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w.-]+=[^;,]*)*(?P<base64>;base64)?,", re.IGNORECASE)
_DECODE_INLINE_LENGTH = 256 * 1024


async def media_from_url(store: ObjectStore, url: str, modality: Modality | None, param: str) -> MediaSource:
    """A source for a URL: a `data:` URL is stored at once, any other is left for `media.fetch` to read.

    Args:
        store: Where media go.
        url: `data:`, `http:` or `https:`.
        modality: What the sender says it is; None: look.
        param: Path of the field in the body, for errors.

    Raises:
        InvalidInputError: A scheme that nobody reads, or data that is not base64.
    """
    scheme = url[:8].partition(":")[0].lower()
    if scheme in ("http", "https"):
        return MediaSource(modality=modality, url=url)
    match = _DATA_URL.match(url)
    if match is None:
        raise InvalidInputError(f"{param}: send an http, https or data URL, not {url[:40]!r}", param=param)
    media_type = match["type"] or "application/octet-stream"
    text = url[match.end() :]
    data = await decode_base64(text, param) if match["base64"] else unquote_to_bytes(text)
    return await stored(store, data, media_type.lower(), modality)


async def media_from_base64(
    store: ObjectStore, text: str, media_type: str, modality: Modality, param: str
) -> MediaSource:
    """A source for media that are in the body as base64.

    Raises:
        InvalidInputError: It is not base64.
    """
    return await stored(store, await decode_base64(text, param), media_type, modality)


async def stored(
    store: ObjectStore, data: bytes, media_type: str, modality: Modality | None = None, name: str | None = None
) -> MediaSource:
    """A source for bytes, which are stored once."""
    return MediaSource(modality=modality, ref=await save_media(store, data, media_type, name))


async def decode_base64(text: str, param: str) -> bytes:
    """The bytes of base64 text, padded or not, in either alphabet.

    Raises:
        InvalidInputError: It is not base64.
    """
    if len(text) > _DECODE_INLINE_LENGTH:
        return await asyncio.to_thread(_decode, text, param)
    return _decode(text, param)


def _decode(text: str, param: str) -> bytes:
    try:
        standard = text.encode("ascii").translate(bytes.maketrans(b"-_", b"+/"), b" \t\r\n").rstrip(b"=")
        return base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInputError(f"{param}: this is not base64: {error}", param=param) from error
