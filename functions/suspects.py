"""Messages that a worker had when it ended without a word."""

from __future__ import annotations

from bus.contracts import Event, Suspicion
from bus.contracts.codec import decode, digest, encode
from bus.errors import ConflictError
from bus.ports import KeyValue

MOST_CRASHES = 2
"""A message that ended so many workers is not run again."""

_BY_CHANCE = 2
"""Kills from outside that say nothing of what was running."""


def message_key(event: Event) -> str:
    """A name for an event's message that a KV key and a flight record can have: 40 hexadecimal digits."""
    return digest(event.message_id.encode())[:40]


class Suspects:
    """Keeps of each such message what became of its workers.

    Args:
        bucket: Where.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def find(self, key: str) -> Suspicion:
        """What is known of a message.

        Args:
            key: See `message_key`.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        entry = await self._bucket.get(key)
        return Suspicion() if entry is None else decode(Suspicion, entry[0])

    async def note(self, key: str, *, running: bool, crashed: bool) -> Suspicion:
        """A worker that had the message has ended; returns what is known of the message now.

        Args:
            key: See `message_key`.
            running: Whether it was running the message, or only had it.
            crashed: Whether it ended by itself, or hung. One that was killed from outside has done so by chance, the
                first times: an operator may kill one worker after the other.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
        """
        while True:
            entry = await self._bucket.get(key)
            known = Suspicion() if entry is None else decode(Suspicion, entry[0])
            guilty = running and (crashed or known.interruptions >= _BY_CHANCE)
            told = Suspicion(interruptions=known.interruptions + 1, crashes=known.crashes + guilty)
            try:
                if entry is None:
                    await self._bucket.create(key, encode(told))
                else:
                    await self._bucket.update(key, encode(told), entry[1])
            except ConflictError:  # another pool has lost a worker over it at the same time
                continue
            return told
