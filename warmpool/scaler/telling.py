"""A pool's entry among the pools: renewed while it lives, gone soon after it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bus.contracts import Capacity
from bus.contracts.codec import encode
from bus.errors import OmnibusError
from bus.ports import KeyValue
from bus.subjects import LEASE_TTL_S

log = logging.getLogger("omnibus.scaler")

RENEW_S = LEASE_TTL_S / 3


class CapacityTeller:
    """Tells what a host can run. Use as a context manager.

    Args:
        bucket: `pools`.
        look: What to tell now; its host is the same every time.
    """

    def __init__(self, bucket: KeyValue, look: Callable[[], Capacity]) -> None:
        self._bucket, self._look = bucket, look
        self._host = look().host
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Tell it, and again from now on.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        await self.tell()
        self._task = asyncio.get_running_loop().create_task(self._renew(), name="omnibus-capacity")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._bucket.delete(self._host)

    async def tell(self) -> None:
        """Tell it now: a worker more or less is of interest to the others at once."""
        await self._bucket.put(self._host, encode(self._look()))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.tell()
            except OmnibusError as error:
                log.warning("the capacity of this host could not be told: %s", error)
