"""What a pool and a worker say to each other: one JSON object a line over the worker's channel.

| who | says | when |
|---|---|---|
| pool | `{"promote": "loaded"}` | the worker is to become that warm |
| worker | `{"reached": "loaded", "timings_s": {"bus": 0.01, …}}` | it has |
| worker | `{"failed": "model_not_found", "message": "…"}` | it cannot, and ends |

A drain is asked for by SIGTERM, which any process manager can send. A channel that closes is the end of the other one.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.contracts import Tier
from bus.errors import PoolError

_MAX_LINE_NBYTES = 65_536


@dataclass(frozen=True)
class Promote:
    """The pool's order to become warmer.

    Attributes:
        tier: How warm.
    """

    tier: Tier


@dataclass(frozen=True)
class Reached:
    """The worker is this warm now.

    Attributes:
        tier: How warm.
        timings_s: Seconds by phase since it was asked to, such as `fork`, `bus` and the names of its functions.
    """

    tier: Tier
    timings_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The worker could not become warmer, and ends.

    Attributes:
        code: Of the error.
        message: Of the error.
    """

    code: str
    message: str


Message = Promote | Reached | Failed


def to_line(message: Message) -> bytes:
    """The message on the wire."""
    match message:
        case Promote(tier):
            body: dict[str, object] = {"promote": tier.value}
        case Reached(tier, timings_s):
            body = {"reached": tier.value, "timings_s": dict(timings_s)}
        case Failed(code, text):
            body = {"failed": code, "message": text[: _MAX_LINE_NBYTES // 8]}
    return json.dumps(body).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """The message of a line.

    Raises:
        PoolError: It is none.
    """
    try:
        match json.loads(line):
            case {"promote": tier}:
                return Promote(Tier(tier))
            case {"reached": tier, "timings_s": dict(timings_s)}:
                return Reached(Tier(tier), timings_s)
            case {"failed": str(code), "message": str(text)}:
                return Failed(code, text)
    except ValueError as error:
        raise PoolError(f"a line of a worker's channel that is no message: {line[:80]!r}") from error
    raise PoolError(f"a message that neither pool nor worker knows: {line[:80]!r}; run one version of both")


class Channel:
    """One end of a worker's channel.

    Args:
        connection: A stream socket; the channel's from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Begin to listen."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection, limit=_MAX_LINE_NBYTES)

    def say(self, message: Message) -> None:
        """Send a message; one that nobody hears any more is lost."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(to_line(message))

    async def hear(self) -> Message | None:
        """The next message; None when the other end is gone.

        Raises:
            PoolError: It is no message.
        """
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return from_line(line) if line.endswith(b"\n") else None

    async def close(self) -> None:
        """Send what was said, and hang up; closing twice is fine."""
        if self._writer is None:
            self._connection.close()
            return
        writer, self._writer = self._writer, None
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            return  # nobody listens any more
