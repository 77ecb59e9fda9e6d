"""The workers that are alive, as they tell the registry."""

from __future__ import annotations

import logging

from bus.contracts import Lease
from bus.contracts.codec import decode
from bus.errors import ContractError
from bus.ports import KeyValue

log = logging.getLogger("omnibus.workers")


async def read_leases(bucket: KeyValue) -> list[Lease]:
    """Every worker that is alive, by group and id; one that speaks a newer language is left out.

    Args:
        bucket: `workers`.

    Raises:
        BusUnavailableError: (retryable) the bus does not answer.
    """
    leases = []
    for worker, value in (await bucket.entries()).items():
        try:
            leases.append(decode(Lease, value))
        except ContractError as error:  # while a deployment is renewed, there are workers of both versions
            log.warning("the lease of worker %s is not understood: %s", worker, error)
    return sorted(leases, key=lambda lease: (lease.group, lease.worker))
