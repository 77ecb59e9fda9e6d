"""A lease says how a worker is, for as long as it lives."""

from __future__ import annotations

import os

from bus.contracts import WorkerState
from bus.memory import MemoryBus
from functions.leases import read_leases
from warmpool.lease import LeaseKeeper, unique_memory_nbytes


async def test_a_lease_tells_state_and_load_and_is_given_up_at_the_end() -> None:
    bucket = await MemoryBus().bucket("workers")
    now = {"slots": 16, "busy": 3, "served": 250, "encoder_cache": {"hits": 7}, "resident": {"tiny@1": 9}}
    keeper = LeaseKeeper(bucket, "media-1", "media", lambda: now)
    await keeper.open()
    (lease,) = await read_leases(bucket)
    assert (lease.worker, lease.group, lease.pid, lease.state) == (
        "media-1",
        "media",
        os.getpid(),
        WorkerState.STARTING,
    )
    await keeper.tell(WorkerState.READY, functions=("media.fetch",))
    (lease,) = await read_leases(bucket)
    assert (lease.state, lease.functions) == (WorkerState.READY, ("media.fetch",))
    assert (lease.slots, lease.busy, lease.served) == (16, 3, 250)
    assert (lease.encoder_cache, lease.resident) == ({"hits": 7}, {"tiny@1": 9})
    now["resident"] = {}
    await keeper.tell(WorkerState.READY)
    (lease,) = await read_leases(bucket)
    assert (lease.resident, lease.functions) == ({}, ("media.fetch",))
    assert lease.started_s <= lease.renewed_s
    await keeper.close()
    assert await read_leases(bucket) == []


def test_the_memory_of_this_process_is_some_megabytes() -> None:
    nbytes = unique_memory_nbytes()
    assert nbytes is None or 1_000_000 < nbytes < 100_000_000_000
