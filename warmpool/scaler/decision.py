"""How many workers of each group each host should have for what is asked.

There is no leader: every pool reads the same capacities and the same backlog, follows the same rule, and takes its own
part of the result. While two see different numbers for a moment, one worker too many or too few is the worst of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.contracts import Capacity
from functions.staffing import USUAL_SERVICE_S, for_backlog


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of a group by all together.

    Attributes:
        requests: That wait or run, on all hosts; None: not known, so every host stays as it is.
        target_wait_s: How long one may wait for a worker.
        least: Workers that there are always, on all hosts together.
        most: The most on all hosts together; None: as many as the hosts take.
    """

    requests: int | None
    target_wait_s: float
    least: int = 0
    most: int | None = None


Shares = dict[str, dict[str, int]]
"""Workers by group, by host."""


def assign(hosts: Sequence[Capacity], demands: Mapping[str, Demand]) -> Shares:
    """Each host's share.

    Who is alive stays where they are as long as they are needed; more of them go where most memory is free. Groups take
    turns, so that none takes all the room.

    Args:
        hosts: Those that are alive, in any order.
        demands: By group. A group without one has what it has.
    """
    ordered = sorted(hosts, key=lambda host: host.host)
    shares: Shares = {host.host: dict.fromkeys(host.groups, 0) for host in ordered}
    missing = {}
    for group in sorted({group for host in ordered for group in host.groups}):
        wanted = _wanted(group, ordered, demands.get(group))
        missing[group] = _keep(group, ordered, shares, wanted)
    _place(ordered, shares, missing)
    return shares


def _wanted(group: str, hosts: Sequence[Capacity], demand: Demand | None) -> int | None:
    """Workers of all hosts together; None: as they are."""
    if demand is None or demand.requests is None:
        return None
    told = [host.groups[group] for host in hosts if group in host.groups]
    measured = [one.service_s for one in told if one.service_s]
    service_s = sum(measured) / len(measured) if measured else USUAL_SERVICE_S
    slots = min(one.slots for one in told)
    needed = max(demand.least, for_backlog(demand.requests, slots, service_s, demand.target_wait_s))
    return needed if demand.most is None else min(needed, demand.most)


def _keep(group: str, hosts: Sequence[Capacity], shares: Shares, wanted: int | None) -> int:
    """Let those stay that are needed; returns how many are missing."""
    having = [host for host in hosts if group in host.groups]
    # Where most work is being done first: the others end sooner.
    for host in sorted(having, key=lambda host: (-host.groups[group].running, -host.groups[group].alive, host.host)):
        there = host.groups[group]
        stay = there.alive if wanted is None else min(there.alive, there.most, wanted)
        shares[host.host][group] = stay
        wanted = None if wanted is None else wanted - stay
    return wanted or 0


def _place(hosts: Sequence[Capacity], shares: Shares, missing: dict[str, int]) -> None:
    """Give each group a worker in turn, where most memory is free, until nothing is missing or fits."""
    free = {
        host.host: host.room_nbytes - sum(shares[host.host][group] * one.nbytes for group, one in host.groups.items())
        for host in hosts
    }
    while any(missing.values()):
        for group in sorted(group for group, count in missing.items() if count):
            able = [
                host
                for host in hosts
                if group in host.groups
                and shares[host.host][group] < host.groups[group].most
                and host.groups[group].nbytes <= free[host.host]
            ]
            if not able:
                missing[group] = 0
                continue
            best = max(able, key=lambda host: free[host.host])  # of equals the first by name
            shares[best.host][group] += 1
            free[best.host] -= best.groups[group].nbytes
            missing[group] -= 1
