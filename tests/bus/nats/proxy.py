"""A TCP proxy before a nats-server, whose connections can be cut: the network, failing on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Proxy:
    """Forwards bytes both ways until it is told not to."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._open = True
        self.url = ""

    def cut(self, *, keep_out: bool = False) -> None:
        """Break every connection; new ones are let in at once, unless they are kept out."""
        self._open = not keep_out
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def let_in(self) -> None:
        """Take connections again."""
        self._open = True

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        back_reader, back_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back_writer}
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            pump = asyncio.get_running_loop().create_task(_pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def close(self) -> None:
        self.cut(keep_out=True)
        if self._pumps:
            await asyncio.wait(self._pumps)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.transport.abort()


@asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy on a free port of the loopback interface."""
    made = Proxy(target)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await made.close()
