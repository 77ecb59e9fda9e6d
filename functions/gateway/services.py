"""What the gateway's handlers stand on: the bus, the store, the tensor plane, the pipelines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from bus.nats.bus import NatsBus
from bus.ports import Bus, ObjectStore, TensorPlane
from bus.store.location import open_store
from bus.tensors.plane import Plane
from functions.client import PipelineClient
from functions.flow.catalog import BUILT_IN, Pipelines
from functions.gateway.config import GatewayConfig
from functions.registry import Registry, load_functions


@dataclass(frozen=True, kw_only=True)
class GatewayServices:
    """Open connections of one gateway.

    Attributes:
        bus: Where requests are started and their answers heard.
        store: Media.
        tensors: Tensors of results, such as embeddings.
        client: Starts pipelines.
        functions: Every function that the pipelines use, known by its contracts only.
    """

    bus: Bus
    store: ObjectStore
    tensors: TensorPlane
    client: PipelineClient
    functions: Registry


OpenServices = Callable[[GatewayConfig], AbstractAsyncContextManager[GatewayServices]]


@asynccontextmanager
async def open_services(config: GatewayConfig) -> AsyncIterator[GatewayServices]:
    """Connect to NATS and the object store of the config.

    Raises:
        BusUnavailableError: (retryable) the bus does not answer.
        StoreUnavailableError: (retryable) the object store does not answer.
        PipelineInvalidError: A pipeline that does not compile.
    """
    functions = load_functions(config.modules)
    pipelines = Pipelines.load(functions, (BUILT_IN, *config.pipelines))
    unopened = open_store(config.store_url, access_key=config.store_access_key, secret_key=config.store_secret_key)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(unopened)
        tensors = await stack.enter_async_context(Plane(store, directory=config.tensors))
        bus = await stack.enter_async_context(NatsBus(config.nats))
        await bus.setup()
        client = await stack.enter_async_context(PipelineClient(bus, pipelines))
        yield GatewayServices(bus=bus, store=store, tensors=tensors, client=client, functions=functions)


def services_of(connection: HTTPConnection) -> GatewayServices:
    """The services of the app that the request came to."""
    services: GatewayServices = connection.app.state.services
    return services


def config_of(connection: HTTPConnection) -> GatewayConfig:
    """The config of the app that the request came to."""
    config: GatewayConfig = connection.app.state.config
    return config
