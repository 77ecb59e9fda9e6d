"""Where messages go that will not be tried again."""

from __future__ import annotations

import time

from bus import subjects
from bus.contracts import DeadLetter, Event
from bus.contracts.codec import encode
from bus.errors import OmnibusError, PayloadTooLargeError
from bus.ports import Bus, Delivery
from functions.flow.record import error_record


class DeadLetters:
    """Writes the dead letters of one function."""

    def __init__(self, bus: Bus, function: str, worker: str) -> None:
        """Nothing is written yet.

        Args:
            bus: Where they are kept.
            function: Whose messages they are.
            worker: Who writes them.
        """
        self._bus = bus
        self._function = function
        self._worker = worker

    async def write(self, event: Event, delivery: Delivery, error: OmnibusError) -> None:
        """Keep an event with the error that ended it; doing it twice keeps it once.

        Raises:
            BusUnavailableError: (retryable) it is not kept.
        """
        await self._publish(self._letter(event, delivery, error), f"{event.message_id}.dead")

    async def write_raw(self, delivery: Delivery, error: OmnibusError) -> None:
        """Keep a message that is no event.

        Raises:
            BusUnavailableError: (retryable) it is not kept.
        """
        event = Event(
            request="unknown", stage="unknown", function=self._function, pipeline="unknown",
            created_s=delivery.queued_s, inputs={"raw": delivery.data},
        )  # fmt: skip
        await self._publish(self._letter(event, delivery, error), f"{self._function}.{delivery.queued_s}.dead")

    def _letter(self, event: Event, delivery: Delivery, error: OmnibusError) -> DeadLetter:
        return DeadLetter(
            event=event,
            error=error_record(error, event.stage),
            attempts=delivery.attempt,
            queued_s=delivery.queued_s,
            dead_s=time.time(),
            worker=self._worker,
        )

    async def _publish(self, letter: DeadLetter, message_id: str) -> None:
        subject = subjects.dead(self._function)
        try:
            await self._bus.publish(subject, encode(letter), message_id=message_id)
        except PayloadTooLargeError:
            # The event fitted one message, the event and its error do not: better a letter without the values than
            # a message that comes back for ever.
            bare = letter.event.model_copy(update={"inputs": {}, "carry": {}})
            details = {**letter.error.details, "left_out": "inputs and carry, too large for a dead letter"}
            told = letter.error.model_copy(update={"details": details})
            letter = letter.model_copy(update={"event": bare, "error": told})
            await self._bus.publish(subject, encode(letter), message_id=message_id)
