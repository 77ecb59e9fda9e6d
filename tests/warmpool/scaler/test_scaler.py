"""What a host knows of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bus.contracts import Capacity, GroupCapacity
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.ports import KeyValue
from bus.subjects import LEASE_TTL_S
from functions.leases import read_capacities
from functions.warm import WarmSpec
from warmpool.policy.keep_alive import Cost
from warmpool.policy.view import GroupView
from warmpool.scaler.scaler import Scaler

WORK = GroupView(
    group="work", warm=WarmSpec(), cost=Cost(nbytes=1e8, start_s=0.5), slots=4, service_s=0.5, alive=0, running=0,
    waiting=0,
)  # fmt: skip


class Clock:
    """A clock that is set by hand."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def scaler(clock: Clock) -> AsyncIterator[tuple[Scaler, KeyValue]]:
    async with MemoryBus() as bus:
        bucket = await bus.bucket("pools")
        async with Scaler(bucket, "here", 1 << 30, [WORK], lambda: None, clock) as here:
            yield here, bucket


async def tell(bucket: KeyValue, renewed_s: float) -> None:
    groups = {"work": GroupCapacity(alive=1, running=0)}
    await bucket.put("there", encode(Capacity(host="there", room_nbytes=1, groups=groups, renewed_s=renewed_s)))
    await asyncio.sleep(0)  # who watches is told in the loop's next turn


async def test_a_host_with_another_date_is_there_for_as_long_as_it_is_heard() -> None:
    clock = Clock()
    async with scaler(clock) as (here, bucket):
        for renewed_s in (-86_400.0, -86_396.0, 4e9, 12.0):  # somebody corrects it meanwhile
            await tell(bucket, renewed_s)
            assert here.served_elsewhere("work")
            clock.now_s += LEASE_TTL_S - 1
        clock.now_s += 2
        assert not here.others
        assert not here.served_elsewhere("work")


async def test_what_is_read_again_is_no_sign_of_life() -> None:
    clock = Clock()
    async with scaler(clock) as (here, bucket):
        await tell(bucket, 5.0)
        clock.now_s += LEASE_TTL_S - 1
        await tell(bucket, 5.0)  # as a bucket's watcher does after it has lost its connection
        clock.now_s += 2
        assert not here.others
        await tell(bucket, 6.0)
        assert [one.host for one in here.others] == ["there"]


async def test_what_a_host_can_run_is_told_with_its_first_word() -> None:
    async with scaler(Clock()) as (_, bucket):
        (told,) = await read_capacities(bucket)
    assert told.groups.keys() == {"work"}
    assert told.groups["work"].most == WORK.warm.max
