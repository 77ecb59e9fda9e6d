"""What a keep-alive policy is, and the simplest one."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from warmpool.policy.hazard import Window

Key = Hashable
"""What has idle times of its own: a function and lane, or one of several workers of a function."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a worker costs.

    Attributes:
        nbytes: Memory that it holds while it waits.
        start_s: Seconds until a started one can take work.
        weight: How bad a cold start of it is, in relation to others'.
    """

    nbytes: float
    start_s: float
    weight: float = 1.0


class KeepAlive(Protocol):
    """Decides during which parts of an idle time a worker waits."""

    def observe(self, key: Key, idle_s: float) -> None:
        """An idle time has ended after so many seconds, with an arrival."""

    def arrived(self, group: Key, source: Key, now_s: float) -> None:
        """A request came, whether or not it ended an idle time.

        Args:
            group: Whose workers serve it.
            source: Which function in which lane of the group.
            now_s: When, on the clock of `windows`.
        """

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0, now_s: float = 0.0) -> tuple[Window, ...]:
        """When to be warm, in seconds since the work ended that ended last, in order and apart from each other.

        Args:
            key: Whose.
            cost: What a worker takes.
            idle_s: How long ago that is: what is known of later times counts.
            now_s: The time that it is asked for, in seconds from anywhere.
        """

    def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
        """Some time has passed.

        Args:
            seconds: So much.
            kept_nbytes: Memory that waited without work meanwhile.
            allowed_nbytes: Memory that would be kept by the policy whose spending is the limit.
        """


class FixedKeepAlive:
    """Every worker waits for the same time.

    Args:
        keep_alive_s: So long; infinite: for ever.
    """

    def __init__(self, keep_alive_s: float = 600.0) -> None:
        self._windows = (Window(0.0, keep_alive_s),) if keep_alive_s > 0 else ()

    def observe(self, key: Key, idle_s: float) -> None:
        """Nothing is learnt."""

    def arrived(self, group: Key, source: Key, now_s: float) -> None:
        """Nothing is learnt."""

    def windows(self, key: Key, cost: Cost, idle_s: float = 0.0, now_s: float = 0.0) -> tuple[Window, ...]:
        """The one that is always the same."""
        return self._windows

    def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
        """Nothing is limited."""


def next_edge(windows: tuple[Window, ...], idle_s: float) -> tuple[bool, float]:
    """Whether somebody idle for so long is warm, and the idle time at which that changes; infinite: never."""
    for window in windows:
        if idle_s < window.start_s:
            return False, window.start_s
        if idle_s < window.end_s:
            return True, window.end_s
    return False, math.inf
