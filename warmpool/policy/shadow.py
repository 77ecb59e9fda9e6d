"""What a fixed keep-alive would hold in memory: the measure of what a better one may spend."""

from __future__ import annotations

from collections import deque

from warmpool.policy.keep_alive import Key


class Shadow:
    """What a fixed keep-alive would hold, without being run.

    Args:
        keep_alive_s: How long each of its workers waits.
    """

    def __init__(self, keep_alive_s: float) -> None:
        self._keep_alive_s = keep_alive_s
        self._held: dict[Key, tuple[float, float]] = {}
        self._ends: deque[tuple[float, Key]] = deque()
        self._nbytes = self._now_s = 0.0

    def begin(self, key: Key, now_s: float, nbytes: float) -> None:
        """An idle time begins."""
        self._held[key] = (now_s + self._keep_alive_s, nbytes)
        self._ends.append((now_s + self._keep_alive_s, key))
        self._nbytes += nbytes

    def end(self, key: Key) -> None:
        """It ends with an arrival, sooner or later than its keep-alive."""
        _, nbytes = self._held.pop(key, (0.0, 0.0))
        self._nbytes -= nbytes

    def pass_to(self, now_s: float) -> float:
        """It is later; returns the byte-seconds that were held meanwhile."""
        spent = 0.0
        while self._ends and self._ends[0][0] <= now_s:
            end_s, key = self._ends.popleft()
            if self._held.get(key, (0.0, 0.0))[0] == end_s:
                spent += (end_s - self._now_s) * self._nbytes
                self._now_s = end_s
                self.end(key)
        spent += (now_s - self._now_s) * self._nbytes
        self._now_s = now_s
        return spent
