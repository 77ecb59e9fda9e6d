"""Work that is done once, in a thread of its own, when somebody first asks for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread


class Once:
    """Runs something in the background the first time that it is started.

    The interpreter waits for it before it ends: a library that is at work must not be torn down.

    Args:
        work: What to do; deals with its own errors.
        name: Of the thread.
    """

    def __init__(self, work: Callable[[], None], *, name: str) -> None:
        self._thread = Thread(target=work, name=name)
        self._lock = Lock()
        self._started = False

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._started:
            return
        with self._lock:
            if not self._started:
                self._started = True
                self._thread.start()

    def join(self) -> None:
        """Wait for the end of what was started."""
        self._thread.join()

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread.is_alive()
