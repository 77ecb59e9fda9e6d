"""The workers and the pools that are alive, as they tell the registry."""

from __future__ import annotations

import logging
from typing import TypeVar

from bus.contracts import Capacity, Contract, Lease
from bus.contracts.codec import decode
from bus.errors import ContractError
from bus.ports import KeyValue

log = logging.getLogger("omnibus.workers")

C = TypeVar("C", bound=Contract)


async def read_leases(bucket: KeyValue) -> list[Lease]:
    """Every worker that is alive, by group and id; one that speaks a newer language is left out.

    Args:
        bucket: `workers`.

    Raises:
        BusUnavailableError: (retryable) the bus does not answer.
    """
    return sorted(await _read(bucket, Lease, "lease of worker"), key=lambda lease: (lease.group, lease.worker))


async def read_capacities(bucket: KeyValue) -> list[Capacity]:
    """Every pool that is alive, by name; one that speaks a newer language is left out.

    Args:
        bucket: `pools`.

    Raises:
        BusUnavailableError: (retryable) the bus does not answer.
    """
    return sorted(await _read(bucket, Capacity, "capacity of host"), key=lambda capacity: capacity.host)


async def _read(bucket: KeyValue, kind: type[C], what: str) -> list[C]:
    read = []
    for name, value in (await bucket.entries()).items():
        try:
            read.append(decode(kind, value))
        except ContractError as error:  # while a deployment is renewed, there are hosts and workers of both versions
            log.warning("the %s %s is not understood: %s", what, name, error)
    return read
