"""What a model takes, told from the size of the process while nobody else is at work in it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from runtime.residency.entry import Entry


class Growth:
    """How the process grows by one model's load and runs; safe from several threads.

    What grows while several models are at work may be anybody's, so it is nobody's: it is measured another time.

    Args:
        resident: Bytes that the process takes.
    """

    def __init__(self, resident: Callable[[], int]) -> None:
        self._resident = resident
        self._busy = 0
        self._alone: Entry | None = None
        self._since = 0
        self._lock = Lock()

    def begin(self, entry: Entry) -> None:
        """A load or a run of the model begins."""
        with self._lock:
            entry.at_work += 1
            self._busy += entry.at_work == 1
            if self._busy > 1:
                self._alone = None
            elif entry.at_work == 1 and (entry.unmeasured_runs or not entry.loaded):
                self._alone, self._since = entry, self._resident()

    def end(self, entry: Entry) -> int | None:
        """A load or a run of it ends; the bytes since the last one began or ended, None where they may be others'."""
        with self._lock:
            grown = None
            if self._alone is entry:
                now = self._resident()
                grown, self._since = now - self._since, now
            entry.at_work -= 1
            if not entry.at_work:
                self._busy -= 1
                self._alone = None
            return grown

    def end_run(self, entry: Entry, *, ran: bool) -> bool:
        """A run of it ends; tells whether what it takes is known better now."""
        grown = self.end(entry)
        if not ran or grown is None or not entry.unmeasured_runs:
            return False
        entry.nbytes += max(0, grown)
        entry.unmeasured_runs -= 1
        return True
