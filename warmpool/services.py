"""What all functions of a worker stand on, opened once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

from bus.ports import Bus
from bus.store.location import open_store
from bus.tensors.plane import Plane
from functions.cache import StageCache
from functions.cancel import Cancellations
from functions.encoder_cache import EncoderCache
from functions.flow.catalog import PlanCache
from functions.flow.join import Joins
from functions.flow.router import Router
from functions.guard import Guard
from functions.invoker import Services
from functions.suspects import Suspects
from functions.watch import RunWatch
from warmpool.config import WorkerConfig


@asynccontextmanager
async def open_services(
    config: WorkerConfig, bus: Bus, worker: str, watch: RunWatch | None, on_stuck: Callable[[], None]
) -> AsyncIterator[Services]:
    """The stores, caches and threads of a worker.

    Args:
        config: Where everything is.
        bus: An open one.
        worker: The worker's id.
        watch: Is told what is done with each message.
        on_stuck: Called when a run hangs.

    Raises:
        BusUnavailableError: (retryable) the bus does not answer.
        StoreUnavailableError: (retryable) the object store does not answer.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            open_store(config.store_url, access_key=config.store_access_key, secret_key=config.store_secret_key)
        )
        encoder_cache = await stack.enter_async_context(
            EncoderCache(
                await bus.bucket("encoded"),
                store,
                budget_nbytes=config.encoder_cache_nbytes,
                shared=config.share_encoded,
            )
        )
        executor = ThreadPoolExecutor(max_workers=config.threads, thread_name_prefix="omnibus-run")
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        yield Services(
            bus=bus,
            store=store,
            tensors=await stack.enter_async_context(Plane(store, directory=config.tensors)),
            router=Router(bus, Joins(await bus.bucket("joins"))),
            plans=PlanCache(await bus.bucket("plans")),
            cache=StageCache(await bus.bucket("cache")),
            encoder_cache=encoder_cache,
            cancellations=await stack.enter_async_context(Cancellations(await bus.bucket("cancels"))),
            worker=worker,
            executor=executor,
            guard=Guard(watch, Suspects(await bus.bucket("suspects")), on_stuck),
        )
