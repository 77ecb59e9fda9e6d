"""What functions need on the bus before anything is asked of them: plans and streams, made once for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bus.contracts.codec import digest_of
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.nats.streams import function_settings
from bus.subjects import START_FUNCTION
from functions.flow.catalog import Pipelines
from functions.spec import FunctionSpec


async def make_streams(
    bus: NatsBus, config: NatsConfig, pipelines: Pipelines, functions: Iterable[FunctionSpec]
) -> None:
    """Tell of every plan, and make the streams of every function, unless somebody has and they are still there.

    Two calls of the JetStream API instead of a hundred. What has been made is remembered by the plans and by how
    streams are made, so that another release makes them as it needs them.

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
    made_so = function_settings(config, START_FUNCTION)
    key = "made-" + digest_of([sorted(names), plans, made_so])[:40]
    known, there = await asyncio.gather(bucket.get(key), bus.has_functions(names))
    if known is None or not there:
        await asyncio.gather(pipelines.announce(bucket), *(bus.ensure_function(name) for name in names))
        await bucket.put(key, b"")
