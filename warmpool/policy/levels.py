"""A group's need of one more worker, level by level, each with idle times of its own.

Level n is needed while n+1 workers or more have work. So the policy that keeps one worker of a function keeps several
of a busier one, and which of them do the work does not matter.
"""

from __future__ import annotations

import math
from typing import Protocol

from warmpool.policy.hazard import Window
from warmpool.policy.keep_alive import Cost, KeepAlive, Key, next_edge

LOOK_AGAIN_S = 900.0
"""A plan to be warm for long is looked at again: the price may be another one."""


class Watcher(Protocol):
    """Somebody who is told of idle times as they begin and end."""

    def begin(self, key: Key, now_s: float, nbytes: float) -> None:
        """A level is needed no more."""

    def end(self, key: Key) -> None:
        """It is needed again."""


class _Level:
    def __init__(self) -> None:
        self.idle_since_s: float | None = None
        self.warm = False
        self.edge_s = math.inf


class Levels:
    """The levels of one group.

    Args:
        group: What it is known by.
        policy: Says when a level without work keeps its worker.
        watcher: Is told of idle times; None: nobody.
    """

    def __init__(self, group: Key, policy: KeepAlive, watcher: Watcher | None = None) -> None:
        self._group, self._policy, self._watcher = group, policy, watcher
        self._levels: list[_Level] = []
        self.needed = 0

    @property
    def kept(self) -> int:
        """Workers that wait, beyond those that are needed."""
        return sum(level.warm for level in self._levels[self.needed :])

    @property
    def edge_s(self) -> float:
        """When to look again; infinite: not before something happens."""
        return min((level.edge_s for level in self._levels[self.needed :]), default=math.inf)

    def idle_s(self, now_s: float) -> float | None:
        """How long no worker at all has been needed; None: one is, or none ever was."""
        since_s = self._levels[0].idle_since_s if self._levels else None
        return None if since_s is None else now_s - since_s

    def need(self, workers: int, cost: Cost, now_s: float) -> None:
        """So many workers are needed from now on: for what runs and what waits."""
        for number in range(self.needed, workers):
            self._end_idle_time(number, now_s)
        former, self.needed = self.needed, workers
        for number in range(workers, former):
            self._levels[number].idle_since_s = now_s
            if self._watcher is not None:
                self._watcher.begin((self._group, number), now_s, cost.nbytes)
            self._plan(number, cost, now_s)

    def look(self, cost: Cost, now_s: float) -> None:
        """Decide again where it is time to."""
        for number in range(self.needed, len(self._levels)):
            if self._levels[number].edge_s <= now_s:
                self._plan(number, cost, now_s)

    def _end_idle_time(self, number: int, now_s: float) -> None:
        if number == len(self._levels):
            self._levels.append(_Level())
        level = self._levels[number]
        level.warm, level.edge_s = False, math.inf
        if level.idle_since_s is not None:
            self._policy.observe((self._group, number), now_s - level.idle_since_s)
            if self._watcher is not None:
                self._watcher.end((self._group, number))
            level.idle_since_s = None

    def _plan(self, number: int, cost: Cost, now_s: float) -> None:
        level = self._levels[number]
        since_s = level.idle_since_s
        if since_s is None:
            return
        windows: tuple[Window, ...] = self._policy.windows((self._group, number), cost, now_s - since_s, now_s)
        level.warm, edge_s = next_edge(windows, now_s - since_s)
        soon_s = math.nextafter(now_s, math.inf)  # where an edge is now, but for what is lost in adding times
        level.edge_s = max(soon_s, min(since_s + edge_s, now_s + LOOK_AGAIN_S)) if edge_s < math.inf else math.inf
