"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
"""How OpenAI ends a stream."""


def event(data: dict[str, Any]) -> bytes:
    """One event.

    Source: WHATWG HTML, section 9.2, Server-sent events.
    """
    return b"data: " + to_json(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Events, or a file, on their way; closes what it stands on, however it ends: done, failed, or nobody there."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        stack: AsyncExitStack,
        media_type: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """A response that takes over `stack`."""
        # Proxies that buffer would hold the tokens back.
        unbuffered = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers={**unbuffered, **(headers or {})}, media_type=media_type)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with self._stack:
            await super().__call__(scope, receive, send)
