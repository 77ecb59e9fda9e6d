"""Memory over time: what workers hold while they start, wait and run."""

from __future__ import annotations


class Meter:
    """Byte-seconds by what a worker does.

    Attributes:
        idle: Of workers that wait.
        starting: Of workers that start.
        busy: Of workers that run.
        starts: How many workers were started.
        retired: How many were ended.
        alive: Of all workers from their start to their end, counted apart from what they do.
    """

    def __init__(self) -> None:
        self.idle = self.starting = self.busy = 0.0
        self.starts = self.retired = 0
        self.alive = self._alive = 0.0
        self._idle = self._starting = self._busy = 0.0
        self._now_s = 0.0

    def pass_to(self, now_s: float) -> None:
        """It is later."""
        seconds = now_s - self._now_s
        self.idle += seconds * self._idle
        self.starting += seconds * self._starting
        self.busy += seconds * self._busy
        self.alive += seconds * self._alive
        self._now_s = now_s

    def start(self, nbytes: float) -> None:
        """A worker is started."""
        self._starting += nbytes
        self._alive += nbytes
        self.starts += 1

    def ready(self, nbytes: float) -> None:
        """It can take work."""
        self._starting -= nbytes
        self._idle += nbytes

    def begin(self, nbytes: float) -> None:
        """It has taken some."""
        self._idle -= nbytes
        self._busy += nbytes

    def end(self, nbytes: float) -> None:
        """It is done with it."""
        self._busy -= nbytes
        self._idle += nbytes

    def retire(self, nbytes: float) -> None:
        """A waiting one ends."""
        self._idle -= nbytes
        self._alive -= nbytes
        self.retired += 1
