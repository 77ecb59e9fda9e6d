"""A worker's flight record: memory that it shares with its pool, and that outlives it.

The worker writes what it does while it does it, at the price of a store: no message, no wake-up. The pool reads it when
it likes, also from a worker that hangs or is dead: when it last lived, and what it was running when it did not.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from functions.watch import RunState

_HEADER = struct.Struct("<ddQQQ")
_MOST = struct.Struct("<Q")
_SLOT = struct.Struct("<BBB62s63s")
_SLOTS = 1023
_COUNT = struct.Struct("<QB119s")
_COUNTS = 256
_COUNTS_AT = _SLOT.size * (_SLOTS + 1)
_NBYTES = _COUNTS_AT + _COUNT.size * _COUNTS
"""A header, a slot for each message that the worker has, and how many have come on each subject; whole pages that
nobody writes take no memory."""


@dataclass(frozen=True)
class Vitals:
    """How a worker is.

    Attributes:
        beat_s: When its event loop last turned, on the monotonic clock of the host; 0: never.
        active_s: When it last had something to do, on the same clock; 0: never.
        busy: Messages that it has.
        served: Messages that it has settled.
        unique_nbytes: Memory that only it holds; 0: not known.
    """

    beat_s: float = 0.0
    active_s: float = 0.0
    busy: int = 0
    served: int = 0
    unique_nbytes: int = 0


class FlightRecord:
    """One worker's record, as its pool or itself has it mapped.

    Args:
        descriptor: Of the shared memory; closed at once, the mapping stays.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            self._memory = mmap.mmap(descriptor, _NBYTES)
        finally:
            os.close(descriptor)
        self._free = list(range(_SLOTS, 0, -1))
        self._subjects: dict[str, int] = {}

    @classmethod
    def create(cls) -> tuple[Self, int]:
        """A new record, and a descriptor of it for the worker, which the caller closes.

        It has no name: it is gone with the last process that has it.
        """
        descriptor = _anonymous()
        os.ftruncate(descriptor, _NBYTES)
        return cls(os.dup(descriptor)), descriptor

    @property
    def vitals(self) -> Vitals:
        """How the worker was when it last told."""
        return Vitals(*_HEADER.unpack_from(self._memory, 0))

    def beat(self, *, busy: int, served: int, unique_nbytes: int) -> None:
        """Tell that the worker lives."""
        now_s = time.monotonic()
        last = self.vitals
        active_s = now_s if busy or served != last.served else last.active_s
        _HEADER.pack_into(self._memory, 0, now_s, active_s, busy, served, unique_nbytes)

    def begin(self, key: str, state: RunState = RunState.WAITING, *, subject: str = "", tenant: str = "") -> int:
        """Note a message.

        Args:
            key: Its id in ASCII, of which 62 characters are kept.
            state: What is done with it.
            subject: Where it was published, ASCII; those on the first 256 subjects are counted. Empty: it is not.
            tenant: The label of whose it is, ASCII, of which 63 characters are kept.

        Returns:
            The number of its slot; 0 where the record is full.
        """
        if subject:
            self._count(subject)
        if not self._free:
            return 0
        slot = self._free[-1]
        whose, name = tenant.encode("ascii"), key.encode("ascii")
        _SLOT.pack_into(self._memory, slot * _SLOT.size, state, min(len(name), 62), min(len(whose), 63), name, whose)
        if slot > self._most:
            _MOST.pack_into(self._memory, _HEADER.size, slot)
        self._free.pop()
        return slot

    def change(self, slot: int, state: RunState) -> None:
        """Note what is done with it now."""
        if slot:
            self._memory[slot * _SLOT.size] = state

    def end(self, slot: int) -> None:
        """It is settled."""
        if slot:
            self._memory[slot * _SLOT.size] = RunState.NONE
            self._free.append(slot)

    def runs(self) -> Iterator[tuple[str, RunState]]:
        """Every message that the worker has, or had when it died."""
        for state, length, _, key, _ in self._slots():
            yield key[:length].decode("ascii"), RunState(state)

    def tenants(self) -> Counter[str]:
        """How many messages the worker has of whom, by tenants' labels."""
        return Counter(tenant[:length].decode("ascii") for _, _, length, _, tenant in self._slots())

    def arrivals(self) -> dict[str, int]:
        """How many messages have come to the worker since its start, by their subjects."""
        found = {}
        for number in range(_COUNTS):
            count, length, subject = _COUNT.unpack_from(self._memory, _COUNTS_AT + number * _COUNT.size)
            if not length:
                break
            found[subject[:length].decode("ascii")] = count
        return found

    @property
    def closed(self) -> bool:
        """Whether the mapping was given up."""
        return self._memory.closed

    def close(self) -> None:
        """Give the mapping up; closing twice is fine."""
        self._memory.close()

    @property
    def _most(self) -> int:
        """The highest slot that was ever taken: no reader looks beyond it."""
        most: int = _MOST.unpack_from(self._memory, _HEADER.size)[0]
        return most

    def _slots(self) -> Iterator[tuple[int, int, int, bytes, bytes]]:
        for slot in range(1, self._most + 1):
            fields: tuple[int, int, int, bytes, bytes] = _SLOT.unpack_from(self._memory, slot * _SLOT.size)
            if fields[0]:
                yield fields

    def _count(self, subject: str) -> None:
        number = self._subjects.setdefault(subject, len(self._subjects))
        if number >= _COUNTS:
            return
        at, name = _COUNTS_AT + number * _COUNT.size, subject.encode("ascii")
        _COUNT.pack_into(self._memory, at, _COUNT.unpack_from(self._memory, at)[0] + 1, min(len(name), 119), name)


def _anonymous() -> int:
    if sys.platform == "linux":
        return os.memfd_create("omnibus-record", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
