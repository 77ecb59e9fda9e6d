"""Which workers are to be killed, and which are to be replaced. Pure but for what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bus.contracts import Tier
from functions.watch import RunState
from warmpool.member import Member

_WATCHED_AFTER = 100
"""Messages after which caches and arenas of a worker are filled, so that what it grows from then on is a leak."""

_MOST_LATE_S = 3.0


@dataclass(frozen=True, kw_only=True)
class UpkeepConfig:
    """When a worker is killed or replaced.

    Attributes:
        silence_s: One that serves, and whose event loop has not turned for so long, hangs.
        start_silence_s: The same for one that is loading, which may hold the interpreter for longer.
        max_age_s: It is replaced after so many seconds; 0: never.
        max_served: It is replaced after so many messages; 0: never.
        max_growth_nbytes: It is replaced when its unique memory has grown by so many bytes since it was warm and had
            served its first hundred messages; 0: never.
    """

    silence_s: float = 10.0
    start_silence_s: float = 60.0
    max_age_s: float = 86_400.0
    max_served: int = 0
    max_growth_nbytes: int = 1 << 30


class Upkeep:
    """Looks after the workers of a pool.

    Args:
        config: When to do what.
    """

    def __init__(self, config: UpkeepConfig | None = None) -> None:
        self._config = config or UpkeepConfig()
        self._settled_nbytes: dict[Member, int] = {}
        self._looked_s: float | None = None
        self._awake_s = 0.0

    def silent(self, members: Iterable[Member], now_s: float) -> list[Member]:
        """Those that hang: a loop that does not turn, a process that is stopped.

        Args:
            members: The workers.
            now_s: On the host's monotonic clock.
        """
        if self._looked_s is None or now_s - self._looked_s > _MOST_LATE_S:
            self._awake_s = now_s  # it was the pool that slept, or the host: silence counts from now on
        self._looked_s = now_s
        return [member for member in members if member.alive and now_s - self._heard_s(member) > self._limit_s(member)]

    def worn(self, members: Iterable[Member], now_s: float) -> Iterator[tuple[Member, str]]:
        """Those that are to be replaced, and why.

        Args:
            members: The workers.
            now_s: On the host's monotonic clock.
        """
        members = list(members)
        self._settled_nbytes = {
            member: self._settled_nbytes[member] for member in members if member in self._settled_nbytes
        }
        for member in members:
            why = self._why(member, now_s) if member.alive and not member.leaving else ""
            if why:
                yield member, why

    def _why(self, member: Member, now_s: float) -> str:
        config, vitals = self._config, member.vitals
        if any(state is RunState.STUCK for _, state in member.record.runs()):
            return "a run of it did not end when it was told to"
        if config.max_age_s and now_s - member.started_s > config.max_age_s:
            return f"it is older than {config.max_age_s:g} s"
        if config.max_served and vitals.served >= config.max_served:
            return f"it has served {vitals.served} messages"
        if not config.max_growth_nbytes or not vitals.unique_nbytes or vitals.served < _WATCHED_AFTER:
            return ""
        grown = vitals.unique_nbytes - self._settled_nbytes.setdefault(member, vitals.unique_nbytes)
        return f"its memory has grown by {grown >> 20} MiB" if grown > config.max_growth_nbytes else ""

    def _heard_s(self, member: Member) -> float:
        return max(member.vitals.beat_s, member.started_s, self._awake_s)

    def _limit_s(self, member: Member) -> float:
        loading = member.tier is None or member.tier.rank < member.goal.rank or member.tier is Tier.PRIMED
        return self._config.start_silence_s if loading else self._config.silence_s
