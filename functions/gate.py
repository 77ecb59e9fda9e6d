"""Runs side by side, or alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Lets runs in side by side; one that is to be alone waits for those that run, and all others wait for it."""

    def __init__(self) -> None:
        self._running = 0
        self._alone = False
        self._first_alone = 0
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def enter(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Be in for the time of a run."""
        if alone:
            await self._clear()
            self._alone = True
        else:
            while self._alone or self._first_alone:
                await self._change()
            self._running += 1
        try:
            yield
        finally:
            if alone:
                self._alone = False
            else:
                self._running -= 1
            self._changed()

    async def _clear(self) -> None:
        self._first_alone += 1
        try:
            while self._running or self._alone:
                await self._change()
        finally:
            self._first_alone -= 1
            self._changed()

    async def _change(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
