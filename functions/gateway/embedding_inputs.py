"""What an embeddings request asks about: texts, and pictures as parts of OpenAI's chat shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bus.contracts import MediaSource, Modality
from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from functions.gateway.inline_media import media_from_url

_MOST = 2048


@dataclass(frozen=True, slots=True)
class Asked:
    """Texts and pictures, each with its place in the request.

    Attributes:
        texts: By place.
        pictures: URLs by place.
    """

    texts: dict[int, str]
    pictures: dict[int, str]

    @property
    def count(self) -> int:
        """Vectors that are wanted."""
        return len(self.texts) + len(self.pictures)


def asked(value: str | list[Any]) -> Asked:
    """Read the field `input`: a text, or a list of texts and of parts such as `{"type": "image_url", …}`.

    Raises:
        InvalidInputError: Names what is none of them, empty, or too much.
    """
    items = [value] if isinstance(value, str) else value
    if not 1 <= len(items) <= _MOST:
        raise InvalidInputError(f"input is 1 to {_MOST} texts or pictures, not {len(items)}", param="input")
    texts: dict[int, str] = {}
    pictures: dict[int, str] = {}
    for place, item in enumerate(items):
        kind, content = _read(item, f"input.{place}")
        (texts if kind == "text" else pictures)[place] = content
    return Asked(texts, pictures)


async def media_of(store: ObjectStore, pictures: dict[int, str]) -> list[MediaSource]:
    """The pictures as sources, in the order of their places; those inside the body are stored.

    Raises:
        InvalidInputError: A URL that nobody reads.
    """
    return [
        await media_from_url(store, url, Modality.IMAGE, f"input.{place}.image_url")
        for place, url in sorted(pictures.items())
    ]


def _read(item: Any, param: str) -> tuple[str, str]:
    if isinstance(item, dict):
        kind = item.get("type")
        content = item.get(kind) if kind in ("text", "image_url") else None
        url = content.get("url") if kind == "image_url" and isinstance(content, dict) else content
        if not isinstance(url, str):
            raise InvalidInputError(f"{param} is a part of type text or image_url with its content", param=param)
        kind, item = str(kind), url
    else:
        kind = "text"
    if not isinstance(item, str):
        raise InvalidInputError(
            f"{param} is a {type(item).__name__}; send text, token ids of another model mean nothing here", param=param
        )
    if not item.strip():
        raise InvalidInputError(f"{param} is empty; an embedding is of something", param=param)
    return kind, item
