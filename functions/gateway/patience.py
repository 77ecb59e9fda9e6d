"""How long doors wait for the bus that machines ask in short intervals, and with little patience of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bus.errors import BusUnavailableError

_PATIENCE_S = 2.0


@asynccontextmanager
async def in_time(what: str, remedy: str) -> AsyncIterator[None]:
    """Give up before a probe or an autoscaler does, which would not know why.

    Args:
        what: What is not known then.
        remedy: What is to be done.

    Raises:
        BusUnavailableError: (retryable) the bus has not answered within 2 s.

    Source: KEDA 2.x documentation, whose HTTP timeout is 3 s by default.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            yield
    except TimeoutError as error:
        raise BusUnavailableError(
            f"{what} is not known: the bus has not answered within {_PATIENCE_S:g} s; {remedy}",
            retry_after_s=_PATIENCE_S,
        ) from error
