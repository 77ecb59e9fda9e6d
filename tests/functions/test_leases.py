"""Workers and pools are read from the registry, those of another version left out."""

from __future__ import annotations

import msgpack

from bus.contracts import Capacity, Lease, WorkerState
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from functions.leases import read_capacities, read_leases


def lease(worker: str) -> bytes:
    return encode(
        Lease(
            worker=worker, group=worker[0], host="h", pid=1, state=WorkerState.READY, functions=(), started_s=1.0,
            renewed_s=2.0,
        )
    )  # fmt: skip


async def test_workers_are_listed_by_group_and_id_and_one_of_a_newer_version_hides_none() -> None:
    bucket = await MemoryBus().bucket("workers")
    for worker in ("b-2", "a-9", "b-1"):
        await bucket.put(worker, lease(worker))
    newer = {**msgpack.unpackb(lease("c-1")), "invented_later": 1}
    await bucket.put("c-1", msgpack.packb(newer))
    await bucket.put("d-1", b"\xff")
    assert [one.worker for one in await read_leases(bucket)] == ["a-9", "b-1", "b-2"]


async def test_pools_are_listed_by_name_and_one_of_a_newer_version_hides_none() -> None:
    bucket = await MemoryBus().bucket("pools")
    for host in ("b", "a"):
        await bucket.put(host, encode(Capacity(host=host, room_nbytes=1, groups={}, renewed_s=0.0)))
    newer = {**msgpack.unpackb((await bucket.get("b") or (b"", 0))[0]), "host": "c", "invented_later": 1}
    await bucket.put("c", msgpack.packb(newer))
    assert [one.host for one in await read_capacities(bucket)] == ["a", "b"]
