from __future__ import annotations

import asyncio

import pytest

from bus.contracts import Capacity, GroupCapacity
from bus.memory import MemoryBus
from functions.leases import read_capacities
from warmpool.scaler.telling import CapacityTeller


class Host:
    """A pool that tells what it has."""

    def __init__(self, name: str) -> None:
        self.name, self.alive = name, 0

    def look(self) -> Capacity:
        groups = {"encode": GroupCapacity(alive=self.alive, running=0)}
        return Capacity(host=self.name, room_nbytes=1, groups=groups, renewed_s=0.0)


async def test_hosts_see_each_other_while_they_live():
    async with MemoryBus() as bus:
        bucket = await bus.bucket("pools")
        async with CapacityTeller(bucket, Host("b").look):
            async with CapacityTeller(bucket, Host("a").look):
                assert [one.host for one in await read_capacities(bucket)] == ["a", "b"]
            assert [one.host for one in await read_capacities(bucket)] == ["b"]
        assert await read_capacities(bucket) == []


async def test_a_change_is_told_at_once():
    host = Host("a")
    async with MemoryBus() as bus:
        bucket = await bus.bucket("pools")
        async with CapacityTeller(bucket, host.look) as teller:
            host.alive = 3
            await teller.tell()
            (told,) = await read_capacities(bucket)
    assert told.groups["encode"].alive == 3


async def test_it_is_told_again_so_that_it_does_not_expire(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("warmpool.scaler.telling.RENEW_S", 0.001)
    host = Host("a")
    async with MemoryBus() as bus:
        bucket = await bus.bucket("pools")
        async with CapacityTeller(bucket, host.look):
            _, first = await bucket.get("a") or (b"", 0)
            while (await bucket.get("a") or (b"", 0))[1] < first + 3:  # the test's own limit ends it
                await asyncio.sleep(0)
