"""Things that are made of parts which are opened one after the other, and closed the other way round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class Opened(ABC):
    """Is whole or not there: where one part cannot be opened, those before it are closed again.

    Use as a context manager.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open every part; raises what `_open` raises."""
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every part, the last one first; closing twice is fine."""
        await self._stack.aclose()

    @abstractmethod
    async def _open(self) -> None:
        """Open the parts, and put how each is closed on the stack."""
