"""One delivery being handled."""

from __future__ import annotations

import time
from typing import Any

from bus.contracts import CacheState, Event, Span
from bus.errors import CancelledRequestError, DeadlineExceededError, OmnibusError
from bus.ports import Delivery
from functions.flow.record import plain
from functions.guard import Case


class Run:
    """What an invoker knows of a delivery while it handles it.

    Attributes:
        event: The message.
        delivery: How it came.
        started_s: Unix time.
        case: What it may do to its worker.
        cache: Whether its outputs were known.
    """

    def __init__(self, event: Event, delivery: Delivery, started_s: float, case: Case) -> None:
        self.event, self.delivery, self.started_s, self.case = event, delivery, started_s, case
        self.cache = CacheState.OFF

    def ends_with(self, error: OmnibusError) -> bool:
        """Whether the error is the request's end, not a fault: a function that took longer than its limit has one."""
        late = self.event.deadline_s is not None and time.time() > self.event.deadline_s
        return isinstance(error, CancelledRequestError) or (isinstance(error, DeadlineExceededError) and late)

    def span(self, function: str, worker: str, status: str, notes: dict[str, Any]) -> Span:
        """What the trace says of it.

        Args:
            function: That ran.
            worker: Where.
            status: `ok`, or the code of what it ended with.
            notes: Numbers and words of the handler's.
        """
        return Span(
            request=self.event.request,
            stage=self.event.stage,
            function=function,
            worker=worker,
            attempt=self.delivery.attempt,
            status=status,
            cache=self.cache,
            queued_s=self.delivery.queued_s,
            started_s=self.started_s,
            finished_s=time.time(),
            traceparent=self.event.traceparent,
            details=plain(notes),
        )
