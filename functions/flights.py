"""What several runs of one process want at the same moment is made by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Flights(Generic[T]):
    """What is being made, by key. For one event loop.

    Whoever takes off must land, with or without what was to be made; those who wait for what was not made take off
    themselves.
    """

    def __init__(self) -> None:
        self._flying: dict[str, asyncio.Future[T | None]] = {}

    def take_off(self, keys: Sequence[str]) -> list[str]:
        """The keys that nobody makes yet; from now on the caller does."""
        mine = [key for key in keys if key not in self._flying]
        for key in mine:
            self._flying[key] = asyncio.get_running_loop().create_future()
        return mine

    def land(self, keys: Sequence[str], made: Mapping[str, T]) -> None:
        """Give what was made to those who wait for it; keys that are not in it were not."""
        for key in keys:
            self._flying.pop(key).set_result(made.get(key))

    async def landed(self, key: str, timeout_s: float) -> T | None:
        """What somebody else makes; None: it was not made, or takes longer.

        Args:
            key: One that `take_off` did not give; nothing is waited for where it has landed.
            timeout_s: How long to wait.
        """
        future = self._flying.get(key)
        if future is None:
            return None
        done, _ = await asyncio.wait((future,), timeout=timeout_s)
        return future.result() if done else None
