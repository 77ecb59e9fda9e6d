"""What a pool sees of itself, and what it is to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.contracts import Tier
from functions.warm import WarmSpec
from warmpool.policy.keep_alive import Cost


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One function group on one host.

    Attributes:
        group: Its name.
        warm: What is asked of it.
        cost: What a worker of it takes.
        slots: Requests that a worker runs at once.
        service_s: How long a request runs, on average.
        alive: Workers that start or are ready; those that are being stopped are none.
        running: Requests that workers have; None: not known, so nothing is changed.
        waiting: Requests that no worker has; None: not known, so nothing is changed.
        share: Workers that are this host's part of what all hosts together need; None: it is the only one.
        leads: Whether this host, of all, is to be ready for a request that is on its way.
        least: Workers that are always there on this host; None: as `warm` says.
        most: The most workers on this host; None: as `warm` says.
        tenants: How many of them are whose; empty: all of one tenant.
    """

    group: str
    warm: WarmSpec
    cost: Cost
    slots: int
    service_s: float
    alive: int
    running: int | None
    waiting: int | None
    share: int | None = None
    leads: bool = True
    least: int | None = None
    most: int | None = None
    tenants: Mapping[str, int] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        """Workers that are always there on this host."""
        return self.warm.min if self.least is None else self.least

    @property
    def ceiling(self) -> int:
        """The most workers on this host."""
        return self.warm.max if self.most is None else self.most


@dataclass(frozen=True, kw_only=True)
class Target:
    """What there is to be of a group.

    Attributes:
        workers: How many.
        needed: How many of them work, or will at once; the others wait.
        tier: How ready those are that wait.
        why: For whom, in words for a log.
    """

    workers: int
    needed: int
    tier: Tier
    why: str

    @property
    def tiers(self) -> dict[Tier, int]:
        """Workers by tier: those that are needed serve; those that wait are as ready as is wished."""
        if self.tier.serves:
            tiers = {self.tier: self.workers}
        elif self.tier is Tier.PRIMED:
            tiers = {Tier.LOADED: self.needed, Tier.PRIMED: self.workers - self.needed}
        else:
            tiers = {Tier.LOADED: self.needed}
        return {tier: number for tier, number in tiers.items() if number}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a pool is to do.

    Attributes:
        targets: By group; a pool starts what is missing and drains what is too much.
        look_again_s: When to ask again if nothing happens before; infinite: not at all.
    """

    targets: Mapping[str, Target]
    look_again_s: float
