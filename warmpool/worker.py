"""A worker: one process that serves the functions of its groups until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from bus.contracts import Tier
from bus.errors import OmnibusError, PoolError
from runtime.engines.cores import use_cores
from runtime.engines.graph_cache import GraphCache, use_graph_cache
from runtime.engines.providers import use_device
from runtime.generation.limits import use_repeatable
from warmpool.config import WorkerConfig
from warmpool.protocol import Channel, Failed, Promote, Reached
from warmpool.record import FlightRecord
from warmpool.serving import Serving

log = logging.getLogger("omnibus.worker")

_BEAT_S = 1.0


class Worker:
    """Serves functions. `run` returns after SIGTERM or SIGINT; a second signal ends the process at once.

    Args:
        config: What it serves and where everything is.
        channel: To the pool that decides how warm it is; None: there is no pool, and it serves as soon as it can.
        record: What the pool reads of it.
    """

    def __init__(
        self, config: WorkerConfig, channel: Channel | None = None, record: FlightRecord | None = None
    ) -> None:
        self.id = f"{'-'.join(config.groups) or 'all'}-{secrets.token_hex(3)}"
        self._config, self._channel, self._record = config, channel, record
        self._goal = Tier.PRIMED if channel else Tier.LOADED
        self._tier: Tier | None = None
        self._stop = asyncio.Event()
        self._stuck = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop.

        Raises:
            WorkerStartError: No function to serve, or one whose model does not load.
            BusUnavailableError: (retryable) no bus.
        """
        self._handle_signals()
        self._use_engines()
        async with AsyncExitStack() as stack:
            if self._channel is not None:
                await self._channel.open()
                stack.push_async_callback(self._channel.close)
                self._with(stack, self._listen(self._channel))
            try:
                await self._serve(stack)
            except OmnibusError as error:
                self._say(Failed(error.code, error.message))
                raise
        if self._stuck.is_set():
            os._exit(1)  # a thread that hangs would keep the process

    async def _serve(self, stack: AsyncExitStack) -> None:
        started_s = time.monotonic()
        serving = await stack.enter_async_context(Serving(self._config, self.id, self._record, self._stuck.set))
        self._with(stack, self._beat(serving))
        self._with(stack, self._quit_when_stuck(serving))
        self._reached(Tier.PRIMED, serving)
        while not self._stop.is_set():
            if self._goal.rank > self._rank:
                await self._climb(serving)
                log.info("worker %s is %s after %.2f s", self.id, self._tier, time.monotonic() - started_s)
            else:
                self._changed.clear()
                await self._changed.wait()
        log.info("worker %s: stopping", self.id)
        await serving.drain()

    async def _climb(self, serving: Serving) -> None:
        """One step warmer, unless it is told to stop meanwhile."""
        tier = list(Tier)[self._rank + 1]
        step = asyncio.ensure_future(serving.load() if tier is Tier.LOADED else serving.warm_up())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([step, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if step.done():
            step.result()
            self._reached(tier, serving)
            return
        step.cancel()
        await asyncio.wait([step])

    @property
    def _rank(self) -> int:
        return -1 if self._tier is None else self._tier.rank

    def _reached(self, tier: Tier, serving: Serving) -> None:
        self._tier = tier
        timings_s, serving.timings_s = serving.timings_s, {}
        self._say(Reached(tier, timings_s))

    def _say(self, message: Reached | Failed) -> None:
        if self._channel is not None:
            self._channel.say(message)

    async def _listen(self, channel: Channel) -> None:
        while True:
            try:
                order = await channel.hear()
            except PoolError as error:
                log.warning("worker %s: %s", self.id, error)
                continue
            if order is None:  # the pool is gone, where the kernel does not end its workers with it
                self._stop.set()
            elif isinstance(order, Promote) and order.tier.rank > self._goal.rank:
                self._goal = order.tier
            self._changed.set()
            if order is None:
                return

    async def _beat(self, serving: Serving) -> None:
        while self._record is not None:
            busy, served = serving.load_counts()
            self._record.beat(busy=busy, served=served, unique_nbytes=serving.unique_nbytes)
            await asyncio.sleep(_BEAT_S)

    async def _quit_when_stuck(self, serving: Serving) -> None:
        """A run hangs: take nothing new. The pool sees that, too, and ends this worker when it has another one."""
        await self._stuck.wait()
        await serving.stop_pulling()
        if self._channel is None:
            self._stop.set()
            self._changed.set()

    def _with(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        stack.callback(task.cancel)

    def _use_engines(self) -> None:
        config = self._config
        use_cores(config.threads)
        use_device(config.device, fallback=config.device_fallback)
        use_repeatable(config.repeatable)
        use_graph_cache(GraphCache(config.graphs) if config.keep_graphs else None)

    def _handle_signals(self) -> None:
        def on_signal() -> None:
            if self._stop.is_set():
                os._exit(1)
            self._stop.set()
            self._changed.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
