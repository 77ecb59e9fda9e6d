"""What keeps a message that ends its workers from harming others."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bus.contracts import Event, Suspicion
from bus.errors import DeliveryExhaustedError, OmnibusError
from bus.headers import tenant_label
from functions.gate import Gate
from functions.suspects import MOST_CRASHES, Suspects, message_key
from functions.watch import NoWatch, RunState, RunWatch

log = logging.getLogger("omnibus.invoker")

_LATE_RUNS = 3


class Case:
    """One delivery of a message, as far as its worker's life is concerned.

    Attributes:
        key: The message's.
        attempt: Which delivery this is, from 1.
        suspicion: What is known of the message.
        stuck: Whether a thread of its handler does not end.
    """

    def __init__(self, key: str, attempt: int, slot: int) -> None:
        self.key, self.attempt, self.slot = key, attempt, slot
        self.suspicion = Suspicion()
        self.stuck = False

    @property
    def tries(self) -> int:
        """How often it was tried, this time included; ends of workers do not count."""
        return max(1, self.attempt - self.suspicion.interruptions)


class Guard:
    """A worker's, for all of its functions.

    Args:
        watch: Is told what is done with each message.
        suspects: Where it is kept which messages ended workers; None: nowhere.
        on_stuck: Called when a thread does not end, after which the worker should take nothing new.
    """

    def __init__(
        self,
        watch: RunWatch | None = None,
        suspects: Suspects | None = None,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        self._watch: RunWatch = watch or NoWatch()
        self._suspects, self._on_stuck = suspects, on_stuck
        self._gate = Gate()
        self._late: dict[str, int] = {}

    def open(self, event: Event, attempt: int, subject: str = "") -> Case:
        """A message has come.

        Args:
            event: The message.
            attempt: Which delivery this is, from 1.
            subject: Where it was published.
        """
        key = message_key(event)
        # What comes again is the same request: who forecasts arrivals counts it once.
        first = subject if attempt == 1 else ""
        return Case(key, attempt, self._watch.begin(key, subject=first, tenant=tenant_label(event.tenant)))

    def close(self, case: Case) -> None:
        """It is settled; one that is stuck stays noted for as long as the worker lives."""
        if not case.stuck:
            self._watch.end(case.slot)

    async def examine(self, case: Case, function: str) -> None:
        """Find out what is known of a message that comes again.

        Raises:
            DeliveryExhaustedError: It has ended too many workers.
            BusUnavailableError: (retryable) the bus does not answer.
        """
        if case.attempt < 2 or self._suspects is None:
            return
        case.suspicion = await self._suspects.find(case.key)
        self._check(case, function)

    @asynccontextmanager
    async def running(self, case: Case) -> AsyncIterator[None]:
        """For the time of its handler's run; one that has ended a worker runs alone, so that it is known if it does."""
        async with self._gate.enter(alone=case.suspicion.crashes > 0):
            self._watch.change(case.slot, RunState.RUNNING)
            try:
                yield
            finally:
                if not case.stuck:
                    self._watch.change(case.slot, RunState.WAITING)

    def ended(self, function: str, *, in_time: bool) -> None:
        """A run has ended, or was told to; several in a row that were told to show that something hangs.

        Args:
            function: Whose run.
            in_time: Whether it ended by itself.
        """
        late = self._late[function] = 0 if in_time else self._late.get(function, 0) + 1
        if late == _LATE_RUNS:
            log.error("%d runs of %s in a row did not end in time: this worker is replaced", late, function)
            self._watch.begin(function, RunState.STUCK)
            self._on_stuck()

    async def stuck(self, case: Case, function: str) -> None:
        """A thread of the message's handler does not end: another worker is to run it, and this one to be replaced.

        Raises:
            DeliveryExhaustedError: It has ended too many workers.
        """
        case.stuck = True
        self._watch.change(case.slot, RunState.STUCK)
        self._on_stuck()
        if self._suspects is None:
            return
        try:
            case.suspicion = await self._suspects.note(case.key, running=True, crashed=True)
        except OmnibusError as error:
            log.warning("%s: it is not kept that a message hangs: %s", function, error)
        self._check(case, function)

    def _check(self, case: Case, function: str) -> None:
        if case.suspicion.crashes >= MOST_CRASHES:
            raise DeliveryExhaustedError(
                f"{function}: {case.suspicion.crashes} workers crashed or hung while they ran it; it is not run again",
                crashes=case.suspicion.crashes,
                attempts=case.attempt,
            )
