"""Who runs in the next step: a queue in front of rows that are always packed from 0."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import OverloadedError
from runtime.generation.kv import KvPool
from runtime.generation.request import Generation, IsCancelled, PromptTokens
from runtime.generation.sampler import Constraint, Sampler
from runtime.generation.sampling import SamplingConfig
from runtime.generation.speculation import Speculation
from runtime.generation.text import Detokenizer, StopFilter


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One answer in the making.

    Attributes:
        prompt: Its prompt.
        sampling: How its tokens are chosen.
        generation: Where the answer goes.
        is_cancelled: Asked between steps.
        deadline_s: Unix time after which nobody waits.
        constraint: What the answer has to look like.
        speculation: Its guesses; None: it makes none.
        length: Tokens that its row of the cache has.
        last: The token that the next step appends.
        produced: Tokens chosen so far.
        keys: Of the prompt's blocks in the prefix cache.
    """

    prompt: PromptTokens
    sampling: SamplingConfig
    generation: Generation
    is_cancelled: IsCancelled
    deadline_s: float | None
    constraint: Constraint | None = None
    speculation: Speculation | None = None
    length: int = 0
    last: int = 0
    produced: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    embeddings: NDArray[Any] | None = None
    sampler: Sampler = field(init=False)
    detokenizer: Detokenizer = field(default_factory=Detokenizer)
    stop: StopFilter = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.sampling, self.prompt.ids, self.constraint)
        self.stop = StopFilter(self.sampling.stop)

    def learn(self, proposed: int, accepted: int) -> None:
        """Take notice of guessed tokens and of those that came true."""
        self.generation.accepted_tokens += accepted
        self.generation.rejected_tokens += proposed - accepted
        if self.speculation is not None:
            self.speculation.learn(proposed, accepted)


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

    def admit(self, sequence: Sequence) -> None:
        """Put a sequence behind the waiting ones.

        Raises:
            OverloadedError: (retryable) too many wait; names what is free.
        """
        free = self._pool.slots - self.running
        if len(self._waiting) >= self._max_waiting + free:
            raise OverloadedError(
                f"{free} of {self._pool.slots} generation slots are free and {len(self._waiting)} requests wait for "
                "them already; try again later",
                retry_after_s=1.0,
                free_slots=free,
                waiting=len(self._waiting),
            )
        self._waiting.append(sequence)

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

    def step_inputs(self, least: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Last tokens int32 `(row,)` and lengths int64 `(row,)` for a decode step of the decoding rows.

        Args:
            least: Rows of the step; those beyond the decoding ones write where their owner will write next.
        """
        spare = [0] * (least - len(self.decoding))
        if spare and self.prefilling is not None:
            spare[0] = self.prefilling.length
        tokens = [sequence.last for sequence in self.decoding] + [0] * len(spare)
        lengths = [sequence.length for sequence in self.decoding] + spare
        return np.array(tokens, np.int32), np.array(lengths, np.int64)

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
