"""Stages that wait for several others: the last one to arrive goes on.

An arrival is a compare-and-set on one KV entry, so two workers that finish at the same instant cannot both
miss each other. A worker that dies between its arrival and the publication arrives again when its message
is redelivered, finds the join complete and publishes; the message id makes that harmless. A replay of one
branch finds the others where they had arrived: runs of one request share its joins.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from pydantic import Field

from bus.contracts import Contract
from bus.contracts.codec import decode, encode
from bus.errors import BusError, ConflictError
from bus.ports import KeyValue

log = logging.getLogger("omnibus.flow")


class JoinRecord(Contract):
    """Who has arrived at a join, and what they brought."""

    schema_name = "omnibus.join"
    schema_version = 1

    arrived: tuple[str, ...]
    values: dict[str, Any] = Field(default_factory=dict)


class Joins:
    """Joins of all requests, in one bucket."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def arrive(
        self, key: str, arrivals: Collection[str], values: dict[str, Any], expected: Collection[str]
    ) -> dict[str, Any] | None:
        """Tell that stages have arrived.

        Args:
            key: Names the join: request and stage.
            arrivals: Stages that have finished or were skipped.
            values: What they bring, by reference.
            expected: Every stage that the join waits for.

        Returns:
            All values once everybody has arrived; None before.
        """
        while True:
            entry = await self._bucket.get(key)
            known = JoinRecord(arrived=()) if entry is None else decode(JoinRecord, entry[0])
            merged = JoinRecord(arrived=tuple(sorted({*known.arrived, *arrivals})), values={**known.values, **values})
            try:
                if entry is None:
                    await self._bucket.create(key, encode(merged))
                elif merged != known:
                    await self._bucket.update(key, encode(merged), entry[1])
            except ConflictError:
                continue  # somebody else arrived in between
            return merged.values if set(expected) <= set(merged.arrived) else None

    async def forget(self, key: str) -> None:
        """The join is over: what it led to is published. Whoever arrives again waits for nobody."""
        try:
            await self._bucket.delete(key)
        except BusError as error:
            log.info("join %s stays until it expires: %s", key, error)
