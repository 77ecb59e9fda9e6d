"""`python -m tests.functions.gateway.parrot.serve '{"max_body_nbytes": 1000}'`: the deployment as a process.

The gateway and the functions share one process and the in-memory bus; it prints its port once it listens.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from bus.contracts import WorkerState
from bus.subjects import START_FUNCTION
from functions.environment import FunctionEnvironment
from functions.flow.catalog import Pipelines
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.flow.start import SLOTS, Starter
from functions.gateway.app import create_app
from functions.gateway.config import GatewayConfig
from functions.gateway.services import GatewayServices
from functions.registry import registry
from warmpool.lease import LeaseKeeper


@asynccontextmanager
async def parrot_services(config: GatewayConfig) -> AsyncIterator[GatewayServices]:
    """Every function of the deployment, served in this process."""
    registry.load("functions.stages.media")
    registry.load("functions.stages.assemble")
    registry.load("tests.functions.gateway.parrot")
    pipelines = Pipelines.load(registry, (Path(__file__).parent / "pipelines",))
    async with FunctionEnvironment() as environment:
        client = await environment.serve(*pipelines)
        bus = environment.bus
        starter = Starter(Router(bus, Joins(await bus.bucket("joins"))), pipelines)
        await bus.ensure_function(START_FUNCTION)
        starting = await bus.serve(START_FUNCTION, SLOTS, starter)
        functions = tuple(sorted({name for plan in pipelines for name in plan.functions}))
        lease = LeaseKeeper(await bus.bucket("workers"), "parrot", "all", lambda: {"slots": 8})
        await lease.open()
        await lease.tell(WorkerState.READY, functions=functions)
        yield GatewayServices(
            bus=bus, store=environment.store, tensors=environment.tensors, client=client, functions=registry
        )
        await lease.close()
        await starting.close()


async def main() -> None:
    """Serve until stopped."""
    app = create_app(GatewayConfig(**json.loads(sys.argv[1])), open_services=parrot_services)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main())
