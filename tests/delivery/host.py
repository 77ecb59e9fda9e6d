"""A pool of real workers on a real server: what a host is, without its gateway."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bus.contracts import Result, Tier
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.registry import registry
from functions.suspects import Suspects
from infra.local.nats_server import NatsServer
from tests.delivery import poison
from tests.delivery.processes import ROOT, runs
from warmpool.casualties import Casualties
from warmpool.forker import Forker
from warmpool.pool import Pool
from warmpool.slot import SlotConfig
from warmpool.starter import SpawnStarter, TemplateStarter
from warmpool.upkeep import Upkeep, UpkeepConfig

_COMMAND = [sys.executable, "-m", "infra.cli.main", "worker"]
_TEMPLATE = [sys.executable, "-m", "infra.local.template"]


class Host:
    """A server, a pool and a client."""

    def __init__(self, folder: Path, server: NatsServer, pool: Pool, client: PipelineClient) -> None:
        self.folder, self.server, self.pool, self.client = folder, server, pool, client

    async def ask(self, **inputs: Any) -> Result:
        """One request to the pipeline of the host's only function, to its end."""
        async with self.client.submit("poison", inputs) as running:
            return await running.result()

    def start(self, **inputs: Any) -> asyncio.Task[Result]:
        """One request, on its way."""
        return asyncio.get_running_loop().create_task(self.ask(**inputs))

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        """Request, attempt and process of every run."""
        return runs(self.folder, "run")


def template_starter(folder: Path, environment: dict[str, str]) -> TemplateStarter:
    """What starts real workers."""
    spawning = SpawnStarter(
        lambda group, channel, record: [
            *_COMMAND, "--group", group, "--channel", str(channel), "--record", str(record)
        ],
        environment,
    )  # fmt: skip
    return TemplateStarter(
        Forker(lambda control: [*_TEMPLATE, str(control)], environment, folder / "template.log"), spawning
    )


@asynccontextmanager
async def poison_workers(folder: Path, count: int = 1) -> AsyncIterator[Host]:
    """A host with so many loaded workers of the function that does to its process what it is asked to."""
    async with hosting(
        folder, functions=poison.__name__, pipelines=Path(poison.__file__).parent, POISON_FOLDER=str(folder)
    ) as host:
        host.pool.want(poison.GROUP, {Tier.LOADED: count})
        await host.pool.reach(poison.GROUP)
        yield host


@asynccontextmanager
async def hosting(
    folder: Path, upkeep: UpkeepConfig | None = None, /, *, functions: str, pipelines: Path, **variables: str
) -> AsyncIterator[Host]:
    """A host whose workers have functions and pipelines of the test's own."""
    (folder / "nats").mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(folder / "nats", folder))
        config = NatsConfig(url=server.url, token=server.token, ack_wait_s=1)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMNIBUS_")}
        environment |= {
            "PYTHONPATH": str(ROOT), "OMNIBUS_NATS_URL": server.url, "OMNIBUS_NATS_TOKEN": server.token,
            "OMNIBUS_ACK_WAIT_S": "1", "OMNIBUS_DATA": str(folder / "data"), "OMNIBUS_FUNCTIONS": functions,
            "OMNIBUS_PIPELINES": str(pipelines), "OMNIBUS_GRACE_S": "5", **variables,
        }  # fmt: skip
        starter = await stack.enter_async_context(template_starter(folder, environment))
        bus = await stack.enter_async_context(NatsBus(config))
        await bus.setup()
        casualties = await stack.enter_async_context(Casualties(Suspects(await bus.bucket("suspects"))))
        slots = SlotConfig(logs=folder, grace_s=10, on_end=casualties.on_end)
        pool = await stack.enter_async_context(Pool(starter, slots, Upkeep(upkeep or UpkeepConfig(silence_s=2.5))))
        client = await stack.enter_async_context(PipelineClient(bus, Pipelines.load(registry, [pipelines])))
        yield Host(folder, server, pool, client)
