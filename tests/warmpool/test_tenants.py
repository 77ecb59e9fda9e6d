"""Nobody's flood keeps others cold: a governor on a real server, with room for a few workers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus import subjects
from bus.contracts import Event, Lane, Tier
from bus.contracts.codec import encode
from bus.headers import event_headers
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.warm import WarmSpec
from tests.bus.nats_server import nats_server
from tests.warmpool.pools import running, until
from tests.warmpool.test_governor import hurried, spec
from warmpool.governor import Governor
from warmpool.pool import Pool

ROOM_NBYTES = 800e6  # for four workers, before anything is measured


async def ask(bus: NatsBus, function: str, tenant: str, times: int) -> None:
    for number in range(times):
        event = Event(
            request=f"{tenant}-{function.replace('.', '-')}-{number}",
            stage="alone",
            function=function,
            pipeline="none",
            tenant=tenant,
            created_s=time.time(),
        )
        await bus.publish(
            subjects.work(function, Lane.INTERACTIVE),
            encode(event),
            message_id=event.message_id,
            headers=event_headers(event),
        )


@asynccontextmanager
async def governed(folder: Path, *groups: str) -> AsyncIterator[tuple[Pool, NatsBus]]:
    settings = dict.fromkeys(groups, WarmSpec(max=50, target_wait_ms=0))
    functions = [spec(f"{group}.work", group) for group in groups]
    with nats_server(folder / "nats") as url:
        async with running(folder) as pool, NatsBus(NatsConfig(url=url)) as bus:
            await bus.setup()
            async with Governor(pool, bus, functions, settings, room_nbytes=ROOM_NBYTES, clock=hurried):
                yield pool, bus


def counts(pool: Pool, *groups: str) -> list[int]:
    serving = [member.group for member in pool.members if member.tier is Tier.LOADED and not member.leaving]
    return [serving.count(group) for group in groups]


async def test_a_flood_of_one_tenant_does_not_keep_the_function_of_another_cold(tmp_path: Path) -> None:
    async with governed(tmp_path, "flooded", "wanted") as (pool, bus):
        await ask(bus, "flooded.work", "loud", 60)
        await until(lambda: counts(pool, "flooded", "wanted") == [4, 0])
        await ask(bus, "wanted.work", "quiet", 1)
        await until(lambda: counts(pool, "flooded", "wanted") == [3, 1])


async def test_two_tenants_who_flood_have_half_of_the_room_each(tmp_path: Path) -> None:
    async with governed(tmp_path, "flooded", "wanted") as (pool, bus):
        await ask(bus, "flooded.work", "loud", 60)
        await until(lambda: counts(pool, "flooded", "wanted") == [4, 0])
        await ask(bus, "wanted.work", "other", 90)
        await until(lambda: counts(pool, "flooded", "wanted") == [2, 2])
