"""Who gets what when all together want more than there is."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping


def max_min(wanted: Mapping[str, float], room: float) -> dict[str, float]:
    """What each gets: nobody gets more than they want, and nobody could get more but from one who has less.

    Args:
        wanted: By tenant.
        room: What there is.

    Source: progressive filling; Bertsekas and Gallager, "Data Networks", section 6.5.2.
    """
    got: dict[str, float] = {}
    left = max(0.0, room)
    for number, (tenant, want) in enumerate(sorted(wanted.items(), key=lambda item: (item[1], item[0]))):
        got[tenant] = min(want, left / (len(wanted) - number))
        left -= got[tenant]
    return got


def in_turn(wanted: Mapping[str, Mapping[str, int]], nbytes: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Whose worker is next, as (tenant, group): always of the tenant that has had the fewest bytes so far.

    Taking from it until there is no room left is progressive filling with whole workers.

    Args:
        wanted: Workers by group, by tenant.
        nbytes: Memory of a worker, by group.
    """
    turns = []
    for tenant, groups in wanted.items():
        # Small ones first: the most workers for a tenant's share.
        each = [group for group in sorted(groups, key=lambda one: (nbytes[one], one)) for _ in range(groups[group])]
        if each:
            turns.append((0.0, tenant, iter(each)))
    heapq.heapify(turns)
    while turns:
        had, tenant, each_group = heapq.heappop(turns)
        group = next(each_group, None)
        if group is not None:
            yield tenant, group
            heapq.heappush(turns, (had + nbytes[group], tenant, each_group))
