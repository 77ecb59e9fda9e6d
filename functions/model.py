"""A function's model as its runs get it: held for the time of a run, loaded or switched meanwhile by its owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol

from runtime.residency.entry import Lease
from runtime.residency.residency import Residency


class Held(NamedTuple):
    """A model for the time of a run.

    Attributes:
        model: What the function's `setup` returned.
        refs: `id@version` of what it is made of: another version is another result.
    """

    model: Any
    refs: tuple[str, ...]


class FunctionModel(Protocol):
    """Where a function's runs get their model."""

    @property
    def refs(self) -> tuple[str, ...]:
        """What a run that begins now would get."""

    def hold(self, version: str | None = None) -> AbstractAsyncContextManager[Held]:
        """The model for the time of a run.

        Args:
            version: `id@version` that the input was made for; None: any will do.

        Raises:
            OverloadedError: (retryable) there is no room to load it, or it is of another version.
            OmnibusError: What loading it raised.
        """


class LoadedModel:
    """A model that is there and stays.

    Args:
        model: What the function's `setup` returned.
        refs: `id@version` of what it is made of.
    """

    def __init__(self, model: Any, refs: tuple[str, ...] = ()) -> None:
        self._held = Held(model, refs)

    @property
    def refs(self) -> tuple[str, ...]:
        """What every run gets."""
        return self._held.refs

    @asynccontextmanager
    async def hold(self, version: str | None = None) -> AsyncIterator[Held]:
        """The model, whatever version the input was made for: its function compares them."""
        yield self._held


class ResidentModel:
    """A model that a residency loads, evicts and switches.

    Args:
        residency: Its owner.
        name: What it is asked for by.
    """

    def __init__(self, residency: Residency, name: str) -> None:
        self._residency, self._name = residency, name

    @property
    def refs(self) -> tuple[str, ...]:
        """What a run that begins now would get."""
        return self._residency.refs(self._name)

    @asynccontextmanager
    async def hold(self, version: str | None = None) -> AsyncIterator[Held]:
        """The model; loaded in a thread when it is not there.

        Args:
            version: `id@version` that the input was made for; None: any will do.

        Raises:
            OverloadedError: (retryable) there is no room to load it, or it is of another version.
            OmnibusError: What loading it raised.
        """
        lease = self._residency.try_lease(self._name, version) or await self._load(version)
        with lease:
            yield Held(lease.model, lease.refs)

    async def _load(self, version: str | None) -> Lease:
        loading = asyncio.ensure_future(asyncio.to_thread(self._residency.lease, self._name, version))
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: whoever stops waiting gives up what it will have got.
            loading.add_done_callback(_give_up)
            raise


def _give_up(loading: asyncio.Future[Lease]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        loading.result().release()
