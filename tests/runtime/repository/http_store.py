"""Published models behind a plain web server, which can be held, and counts what it sends."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from bus.errors import ObjectMissingError
from tests.made.range_server import RangeServer


class StoreServer(RangeServer):
    """Serves objects by key, and at `/` the list of them."""

    def page(self, path: str) -> bytes | None:
        return "\n".join(key.removeprefix("/") for key in sorted(self.files)).encode() if path == "/" else None


class HttpShelf:
    """A `ModelShelf`, for any process.

    Args:
        origin: Of a `StoreServer`.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin

    def keys(self, prefix: str = "") -> Iterator[str]:
        yield from (key for key in httpx.get(f"{self._origin}/").text.splitlines() if key.startswith(prefix))

    def get(self, key: str) -> bytes:
        answer = httpx.get(self.signed_url(key))
        if answer.status_code == 404:
            raise ObjectMissingError(f"no object {key!r}", key=key)
        return answer.content

    def signed_url(self, key: str) -> str:
        return f"{self._origin}/{key}"
