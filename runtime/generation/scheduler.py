"""Who runs in the next step: a queue in front of rows that are always packed from 0."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from bus.errors import InvalidInputError, OverloadedError
from runtime.generation.kv import KvPool
from runtime.generation.sequence import Sequence


class Scheduler:
    """Waiting sequences, at most one in prefill, and the decoding ones.

    Row `i` of the pool belongs to `decoding[i]`; the row behind them belongs to the one in prefill. A row that ends is
    filled from the last one, so that a decode step always runs on one block of memory.

    Args:
        pool: The cache.
        max_waiting: The most sequences that wait for a row.
    """

    def __init__(self, pool: KvPool, max_waiting: int) -> None:
        self._pool = pool
        self._max_waiting = max_waiting
        self._waiting: deque[Sequence] = deque()
        self.decoding: list[Sequence] = []
        self.prefilling: Sequence | None = None

    def __len__(self) -> int:
        return len(self._waiting) + self.running

    @property
    def running(self) -> int:
        """Rows in use."""
        return len(self.decoding) + (self.prefilling is not None)

    def admit(self, sequences: list[Sequence]) -> None:
        """Put sequences behind the waiting ones, all or none.

        Raises:
            InvalidInputError: More than there are places at all.
            OverloadedError: (retryable) too many wait; names what is free.
        """
        waiting, slots = len(self._waiting), self._pool.slots
        if len(sequences) > slots + self._max_waiting:
            raise InvalidInputError(
                f"{len(sequences)} answers are asked for at once; {slots + self._max_waiting} have a place here",
                param="n",
            )
        places = self._max_waiting + slots - self.running - waiting
        if len(sequences) > places:
            raise OverloadedError(
                f"{self.running} answers run in {slots} slots and {waiting} more wait: of {slots + self._max_waiting} "
                f"places {max(0, places)} are free, {len(sequences)} are asked for; try again later",
                retry_after_s=1.0,
                free=max(0, places),
                waiting=waiting,
            )
        self._waiting.extend(sequences)

    def next_prefill(self) -> tuple[Sequence, int] | None:
        """The sequence to prefill and its row; None when there is none or no row for it."""
        if self.prefilling is None and self._waiting and len(self.decoding) < self._pool.slots:
            self.prefilling = self._waiting.popleft()
        return None if self.prefilling is None else (self.prefilling, len(self.decoding))

    def prefilled(self) -> None:
        """The one in prefill has its prompt in the cache and decodes from now on."""
        if self.prefilling is not None:
            self.decoding.append(self.prefilling)
            self.prefilling = None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and keep the rows packed."""
        if sequence is self.prefilling:
            self.prefilling = None
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        elif sequence in self.decoding:
            self._pack(self.decoding.index(sequence))

    def step_inputs(self, least: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Last tokens int32, lengths int64 and shifts of positions int64 of the decoding rows, `(row,)` each.

        Args:
            least: Rows of the step; those beyond the decoding ones write where their owner will write next.
        """
        spare = [0] * (least - len(self.decoding))
        if spare and self.prefilling is not None:
            spare[0] = self.prefilling.length
        tokens = [sequence.last for sequence in self.decoding] + [0] * len(spare)
        lengths = [sequence.length for sequence in self.decoding] + spare
        shifts = [sequence.shift for sequence in self.decoding] + [0] * len(spare)
        return np.array(tokens, np.int32), np.array(lengths, np.int64), np.array(shifts, np.int64)

    def row_of(self, sequence: Sequence) -> int:
        """The row of one that decodes."""
        return self.decoding.index(sequence)

    def everyone(self) -> list[Sequence]:
        """Every sequence that has not ended."""
        busy = [] if self.prefilling is None else [self.prefilling]
        return [*self.decoding, *busy, *self._waiting]

    def _pack(self, hole: int) -> None:
        last = len(self.decoding) - 1
        if hole != last:
            self._pool.move(last, hole, self.decoding[last].length)
            self.decoding[hole] = self.decoding[last]
        self.decoding.pop()
        if self.prefilling is not None:
            self._pool.move(last + 1, last, self.prefilling.length)
