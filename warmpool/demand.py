"""What is asked of cold functions, heard the moment it is published.

Work subjects are ordinary subjects to whoever listens without JetStream, so a message that a stream keeps for a worker
is heard here as well. Only functions without a worker are listened to: what goes to the others costs nothing. Bodies
are not read: whose a message is, and which plan it belongs to, is in its headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from bus import subjects
from bus.headers import plan_of, stages_of, tenant_of
from bus.ports import Bus, Subscription


class Heard(NamedTuple):
    """A message that was published for a function without a worker.

    Attributes:
        function: Which it is for.
        tenant: The label of whose it is.
        plan: Digest of the plan that it is a stage of; empty: none.
        stages: Those that its request can still get to; none: it is not told.
    """

    function: str
    tenant: str
    plan: str
    stages: frozenset[str] = frozenset()


class Demand:
    """Listens for some functions. Use `listen_to` whenever the set changes, and `close` at the end.

    Args:
        bus: Where they are asked.
        heard: Is told.
        missed: Is told of a function for which something may have been published that was not heard: also when it
            begins to be listened to.
    """

    def __init__(self, bus: Bus, heard: Callable[[Heard], None], missed: Callable[[str], None]) -> None:
        self._bus, self._heard, self._missed = bus, heard, missed
        self._subscriptions: dict[str, Subscription] = {}

    async def listen_to(self, functions: Iterable[str]) -> None:
        """Listen to these functions and to no others.

        Raises:
            BusUnavailableError: (retryable) no bus.
        """
        wanted = set(functions)
        for function in set(self._subscriptions) - wanted:
            await self._subscriptions.pop(function).close()
        await asyncio.gather(*(self._listen(function) for function in wanted - set(self._subscriptions)))

    async def close(self) -> None:
        """Listen no more."""
        await self.listen_to(())

    async def _listen(self, function: str) -> None:
        pattern = subjects.work_of_all_lanes(function)
        self._subscriptions[function] = await self._bus.listen(
            pattern, self._on_message, partial(self._missed, function)
        )
        self._missed(function)  # what was published before somebody listened, whatever becomes of the others

    def _on_message(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        self._heard(Heard(subjects.function_of(subject), tenant_of(headers), plan_of(headers), stages_of(headers)))
