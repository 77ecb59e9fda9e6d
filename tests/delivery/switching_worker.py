"""A real worker of the function whose model is switched, on a server of its own, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus import subjects
from bus.contracts import WorkerState
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.leases import read_leases
from functions.registry import registry
from infra.local.nats_server import NatsServer
from tests.delivery import switching
from tests.delivery.processes import omnibus

HERE = Path(switching.__file__).parent


@asynccontextmanager
async def switching_worker(folder: Path, **variables: str) -> AsyncIterator[PipelineClient]:
    """A worker that is ready; its models lie in `models` of the folder."""
    (folder / "nats").mkdir()
    async with (
        NatsServer(folder / "nats", folder) as server,
        NatsBus(NatsConfig(url=server.url, token=server.token)) as bus,
    ):
        await bus.setup()
        for name in ("switching.first", "switching.second", subjects.START_FUNCTION):
            await bus.ensure_function(name)
        with omnibus(
            "worker", "--group", switching.GROUP, log=folder / "worker.log",
            OMNIBUS_NATS_URL=server.url, OMNIBUS_NATS_TOKEN=server.token, OMNIBUS_DATA=str(folder / "data"),
            OMNIBUS_MODELS=str(folder / "models"), OMNIBUS_FUNCTIONS=switching.__name__, OMNIBUS_PIPELINES=str(HERE),
            **variables,
        ) as worker:  # fmt: skip
            while not any(lease.state is WorkerState.READY for lease in await read_leases(await bus.bucket("workers"))):
                assert worker.poll() is None, (folder / "worker.log").read_text()
                await asyncio.sleep(0.02)
            async with PipelineClient(bus, Pipelines.load(registry, [HERE])) as client:
                yield client
