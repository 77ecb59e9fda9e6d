"""What functions need on the bus before anything is asked of them: plans and streams, made once for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bus.contracts.codec import digest_of
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.subjects import START_FUNCTION
from functions.flow.catalog import Pipelines
from functions.spec import FunctionSpec


async def make_streams(
    bus: NatsBus, config: NatsConfig, pipelines: Pipelines, functions: Iterable[FunctionSpec]
) -> None:
    """Tell of every plan, and make the streams of every function, unless somebody has since the bus was made.

    A hundred calls of the JetStream API for one that reads: what it reads is on the same disk as the streams.

    Args:
        bus: Set up.
        config: How its streams are made.
        pipelines: Of the deployment.
        functions: All of the deployment, also those that other workers serve: their work is kept until they are there.

    Raises:
        BusUnavailableError: (retryable) no bus.
    """
    names = {name for plan in pipelines for name in plan.functions} | {spec.name for spec in functions}
    names.add(START_FUNCTION)
    bucket = await bus.bucket("plans")
    plans = sorted(plan.digest for plan in pipelines)
    key = "made-" + digest_of([sorted(names), plans, config.ack_wait_s, config.replicas])[:40]
    if await bucket.get(key) is None:
        await asyncio.gather(pipelines.announce(bucket), *(bus.ensure_function(name) for name in names))
        await bucket.put(key, b"")
