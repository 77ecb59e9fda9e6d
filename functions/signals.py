"""What a handler raises to say what should happen to its message. Signals are not errors."""

from __future__ import annotations


class Signal(Exception):  # noqa: N818 - a signal is not an error
    """Root of the signals."""


class Retry(Signal):
    """Deliver this message again later."""

    def __init__(self, reason: str, *, delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = delay_s


class Reject(Signal):
    """Never deliver this message again: straight to the dead letters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Skip(Signal):
    """This stage has nothing to do for this request; go on without its outputs."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
