"""A worker's entry in the registry: renewed while it lives, gone soon after it does not."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bus.contracts import Lease, Tier, WorkerState
from bus.contracts.codec import encode
from bus.errors import OmnibusError
from bus.ports import KeyValue
from bus.subjects import LEASE_TTL_S

log = logging.getLogger("omnibus.lease")


class LeaseKeeper:
    """Writes and renews one worker's lease.

    Args:
        bucket: The registry.
        worker: The worker's id.
        group: Its function group.
        look: Returns what changes while it lives, by the fields of `Lease`: `slots`, `busy`, `served`, `status`, ….
    """

    def __init__(self, bucket: KeyValue, worker: str, group: str, look: Callable[[], Mapping[str, Any]]) -> None:
        self._bucket, self._look = bucket, look
        self._started_s = time.time()
        self.unique_nbytes: int | None = None
        """Memory that only this process holds, as last told."""
        self._fields: dict[str, Any] = {
            "worker": worker,
            "group": group,
            "functions": (),
            "models": (),
            "tier": Tier.PRIMED,
        }
        self._state = WorkerState.STARTING
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Write the lease and renew it from now on."""
        await self._write()
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="omnibus-lease")

    async def tell(self, state: WorkerState, **fields: Any) -> None:
        """Write a change at once."""
        self._state = state
        self._fields.update(fields)
        self.unique_nbytes = unique_memory_nbytes()
        await self._write()

    async def renew(self) -> None:
        """Write what has changed meanwhile at once, but for the memory: counting it takes the kernel milliseconds."""
        await self._write()

    async def close(self) -> None:
        """Give the lease up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._bucket.delete(self._fields["worker"])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(LEASE_TTL_S / 3)
            self.unique_nbytes = unique_memory_nbytes()
            try:
                await self._write()
            except OmnibusError as error:
                log.warning("the lease could not be renewed: %s", error)

    async def _write(self) -> None:
        lease = Lease(
            **{**self._fields, **self._look()},
            host=socket.gethostname(),
            pid=os.getpid(),
            state=self._state,
            started_s=self._started_s,
            renewed_s=time.time(),
            unique_nbytes=self.unique_nbytes,
        )
        await self._bucket.put(lease.worker, encode(lease))


def unique_memory_nbytes() -> int | None:
    """Bytes of memory that only this process holds; None where the system does not tell.

    Source: Linux, Documentation/filesystems/proc.rst, smaps_rollup.
    """
    if sys.platform != "linux":
        return None
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
            sizes = [line.split() for line in rollup if line.startswith(("Private_Clean", "Private_Dirty"))]
    except OSError:
        return None
    return sum(int(fields[1]) for fields in sizes) * 1024
