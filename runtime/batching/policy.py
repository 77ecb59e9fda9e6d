"""Which items run together and when: no clock, no thread, no loop; times are arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bus.errors import InvalidInputError

T = TypeVar("T")

_REMEMBERED = 1024
"""Tenants whose turns are remembered while none of their items waits."""


@dataclass(frozen=True, slots=True, eq=False)
class Item(Generic[T]):
    """One item that waits.

    Attributes:
        value: What it is.
        bucket: Items of one bucket can run together: a shape, a class of lengths.
        tenant: Whose it is.
        arrived_s: When it came.
    """

    value: T
    bucket: Hashable
    tenant: str
    arrived_s: float


Limit = Callable[[Hashable], int]
"""The most items of a bucket in one batch."""


class BatchPolicy(Generic[T]):
    """Collects items and says which are next.

    A bucket is due when it has a full batch or when one of its items has waited long enough; buckets do not wait for
    each other. Of the tenants with items that are due, the one that was served longest ago chooses the bucket, with the
    item that it has waited for longest; the batch is then filled by taking one item of each tenant in turn. So a
    tenant that sends a flood delays another one's item by no more than the batch that runs.

    Args:
        limit: The most items of a batch, by bucket or for all.
        max_wait_s: The longest that an item waits for others while there is capacity; 0: it never does.
    """

    def __init__(self, limit: int | Limit, max_wait_s: float = 0.0) -> None:
        self._limit: Limit = limit if callable(limit) else lambda bucket: limit
        self._max_wait_s = max_wait_s
        # Ordered and found by identity: a call that is given up may take thousands of items out of many thousands.
        self._queues: dict[Hashable, dict[str, OrderedDict[Item[T], None]]] = {}
        self._served: dict[str, int] = {}
        self._turns = 0

    def __len__(self) -> int:
        """Items that wait."""
        return sum(len(queue) for tenants in self._queues.values() for queue in tenants.values())

    def add(self, item: Item[T]) -> None:
        """Let an item wait.

        Raises:
            InvalidInputError: Its bucket takes no items.
        """
        if self._limit(item.bucket) < 1:
            raise InvalidInputError(f"a batch of {item.bucket!r} takes {self._limit(item.bucket)} items")
        self._queues.setdefault(item.bucket, {}).setdefault(item.tenant, OrderedDict())[item] = None

    def remove(self, item: Item[T]) -> bool:
        """Let an item go that nobody waits for any more; tells whether it was still waiting."""
        queue = self._queues.get(item.bucket, {}).get(item.tenant)
        if queue is None or item not in queue:
            return False
        del queue[item]
        self._forget(item.bucket, item.tenant)
        return True

    def take(self, now_s: float) -> list[Item[T]]:
        """The next batch, in the order of its items' turns; empty when nothing is due."""
        due = [bucket for bucket in self._queues if self._due_s(bucket) <= now_s]
        if not due:
            return []
        heads = [_first(queue) for bucket in due for queue in self._queues[bucket].values()]
        first = min(heads, key=lambda head: (self._served.get(head.tenant, -1), head.arrived_s))
        return self._fill(first)

    def due_s(self) -> float | None:
        """When the next batch is due; None while nothing waits."""
        return min(map(self._due_s, self._queues), default=None)

    def _fill(self, first: Item[T]) -> list[Item[T]]:
        bucket, limit = first.bucket, self._limit(first.bucket)
        tenants = self._queues[bucket]
        # The one whose turn it is begins; the others follow by who was served longest ago.
        order = sorted(tenants, key=lambda name: (name != first.tenant, self._served.get(name, -1)))
        batch: list[Item[T]] = []
        while len(batch) < limit and order:
            for name in list(order):
                if len(batch) == limit:
                    break
                batch.append(tenants[name].popitem(last=False)[0])
                self._turns += 1
                self._served[name] = self._turns
                if not tenants[name]:
                    order.remove(name)
        for item in batch:
            self._forget(bucket, item.tenant)
        return batch

    def _due_s(self, bucket: Hashable) -> float:
        queues = self._queues[bucket].values()
        if sum(map(len, queues)) >= self._limit(bucket):
            return float("-inf")
        return min(_first(queue).arrived_s for queue in queues) + self._max_wait_s

    def _forget(self, bucket: Hashable, tenant: str) -> None:
        """Keep nothing of queues that are empty, nor of tenants that have gone."""
        tenants = self._queues.get(bucket)
        if tenants is None or tenants.get(tenant):
            return
        tenants.pop(tenant, None)
        if not tenants:
            del self._queues[bucket]
        if not self._queues:
            self._served.clear()
        elif len(self._served) > _REMEMBERED:
            waiting = {name for queues in self._queues.values() for name in queues}
            self._served = {name: turn for name, turn in self._served.items() if name in waiting}


def _first(queue: OrderedDict[Item[T], None]) -> Item[T]:
    return next(iter(queue))
