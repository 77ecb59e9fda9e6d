"""A web server that says exactly what a test tells it to, lies included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Site:
    """Raw answers by path.

    Attributes:
        port: On the loopback.
        answers: Path → the bytes of the whole response; None: never answers.
        requests: Heads of the requests that came.
    """

    port: int = 0
    answers: dict[str, bytes | None] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


def answer(body: bytes, *, status: str = "200 OK", **headers: str) -> bytes:
    """A response; its length is what it says unless a header says otherwise."""
    fields = {"content-length": str(len(body)), "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


@asynccontextmanager
async def website() -> AsyncIterator[Site]:
    """A site on a free port of the loopback."""
    site = Site()
    stopping = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        site.requests.append(head)
        found = site.answers.get(head.split(" ")[1], answer(b"", status="404 Not Found"))
        if found is None:
            await stopping.wait()
        else:
            writer.write(found)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        stopping.set()
        server.close()
        await server.wait_closed()
