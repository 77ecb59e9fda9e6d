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
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def let_in(self) -> None:
        """Take connections, at the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection; new ones are let in at once."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def shut(self) -> None:
        """Break every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    async def close(self) -> None:
        self.shut()
        if self._pumps:
            await asyncio.wait(self._pumps)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back_writer}
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            pump = asyncio.get_running_loop().create_task(_pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass  # a cut connection is what the proxy is for
    finally:
        sink.transport.abort()


@asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy on a free port of the loopback interface."""
    made = Proxy(target)
    await made.let_in()
    try:
        yield made
    finally:
        await made.close()
