from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.memory import MemoryBus
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import Bus
from tests.bus.behaviour.receiver import FUNCTION
from tests.bus.nats_server import nats_server

ACK_WAIT_S = 0.5


@pytest.fixture(params=["memory", "nats"])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bus]:
    """An empty bus with one function, in memory and on a server of its own."""
    if request.param == "memory":
        async with MemoryBus(ack_wait_s=ACK_WAIT_S) as memory:
            await memory.ensure_function(FUNCTION)
            yield memory
        return
    with nats_server(tmp_path / "nats") as url:
        async with NatsBus(NatsConfig(url=url, ack_wait_s=ACK_WAIT_S)) as nats:
            await nats.setup()
            await nats.ensure_function(FUNCTION)
            yield nats
