"""A small HTTP/1.1 load generator, cheap enough not to be what is measured."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Load:
    """What a run gave.

    Attributes:
        rate: Requests a second.
        times_s: Of every request, in seconds.
    """

    rate: float
    times_s: list[float]


async def load(port: int, path: str, body: bytes, *, clients: int, seconds: float, content_type: str) -> Load:
    """POST the body over so many keep-alive connections for so long.

    Raises:
        RuntimeError: A response that is not 200.
        TimeoutError: No response for a long time.
    """
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    times: list[float] = []
    started = time.perf_counter()
    ends = started + seconds
    async with asyncio.timeout(seconds + _PATIENCE_S):
        await asyncio.gather(*(_client(port, head + body, ends, times) for _ in range(clients)))
    return Load(len(times) / (time.perf_counter() - started), times)


async def _client(port: int, message: bytes, ends: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * 1024 * 1024)
    while (started := time.perf_counter()) < ends:
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"{head!r} {await reader.read(500)!r}")
        await _body(reader, head.lower())
        times.append(time.perf_counter() - started)
    writer.close()
    await writer.wait_closed()


async def _body(reader: asyncio.StreamReader, head: bytes) -> None:
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()
