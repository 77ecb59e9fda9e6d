"""What is asked of cold functions, heard the moment it is published.

Work subjects are ordinary subjects to whoever listens without JetStream, so a message that a stream keeps for a worker
is heard here as well. Only functions without a worker are listened to: what goes to the others costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from bus import subjects
from bus.contracts import Event
from bus.contracts.codec import decode
from bus.errors import ContractError
from bus.ports import Bus, Subscription

log = logging.getLogger("omnibus.pool")

Heard = Callable[[str, Event | None], None]
"""Called with the function that a message is for, and the message where it is an event."""


class Demand:
    """Listens for some functions. Use `listen_to` whenever the set changes, and `close` at the end.

    Args:
        bus: Where they are asked.
        heard: Is told.
    """

    def __init__(self, bus: Bus, heard: Heard) -> None:
        self._bus, self._heard = bus, heard
        self._subscriptions: dict[str, Subscription] = {}

    async def listen_to(self, functions: Iterable[str]) -> set[str]:
        """Listen to these functions and to no others; returns those that were not listened to before.

        Raises:
            BusUnavailableError: (retryable) no bus.
        """
        wanted = set(functions)
        for function in set(self._subscriptions) - wanted:
            await self._subscriptions.pop(function).close()
        fresh = wanted - set(self._subscriptions)
        for function in fresh:
            pattern = subjects.work_of_all_lanes(function)
            self._subscriptions[function] = await self._bus.listen(pattern, self._on_message)
        return fresh

    async def close(self) -> None:
        """Listen no more."""
        await self.listen_to(())

    def _on_message(self, subject: str, data: bytes) -> None:
        function = subjects.function_of(subject)
        try:
            event: Event | None = decode(Event, data)
        except ContractError:  # a worker will say so
            event = None
        self._heard(function, event)
