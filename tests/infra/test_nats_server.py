from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from bus.errors import StackConfigError, UnauthorizedError, WorkerStartError
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from infra.local.nats_server import NatsServer
from infra.local.stack import check_port


async def test_the_server_asks_for_its_token_and_keeps_it_private(tmp_path: Path):
    async with NatsServer(tmp_path, tmp_path) as server:
        with pytest.raises(UnauthorizedError):
            await NatsBus(NatsConfig(url=server.url, token="wrong")).__aenter__()
        async with NatsBus(NatsConfig(url=server.url, token=server.token)) as bus:
            assert bus.max_payload == 1_000_000 or bus.max_payload == 1024 * 1024
        assert stat.S_IMODE((tmp_path / "nats-server.conf").stat().st_mode) == 0o600
        assert server.token not in repr(NatsConfig(token=server.token))


async def test_a_server_that_was_killed_comes_back_on_its_port_with_its_data(tmp_path: Path):
    async with (
        NatsServer(tmp_path, tmp_path) as server,
        NatsBus(NatsConfig(url=server.url, token=server.token)) as bus,
    ):
        await bus.setup()
        await bus.publish("result.before", b"kept", message_id="a")
        first = server.pid
        os.kill(first, signal.SIGKILL)
        assert await bus.publish("result.after", b"late", message_id="b")
        assert server.pid != first
        assert await bus.history("result.before") == [("result.before", b"kept")]


async def test_a_server_that_cannot_be_started_again_is_told_of(tmp_path: Path):
    async with NatsServer(tmp_path, tmp_path) as server:
        failed = asyncio.ensure_future(server.failed())
        (tmp_path / "nats-server.conf").write_text("listen: nonsense")
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(WorkerStartError, match=r"nats-server did not start .*nats-server\.log"):
            await failed


async def test_nothing_is_left_running(tmp_path: Path):
    async with NatsServer(tmp_path, tmp_path) as server:
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_port_in_use_is_named_with_the_remedy():
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(StackConfigError, match=f"port {port} on 127.0.0.1 cannot be used: .*OMNIBUS_PORT"):
        check_port("127.0.0.1", port)
    listener.close()
    await listener.wait_closed()
    check_port("127.0.0.1", port)
