"""A function's model as its runs get it: held for the time of a run, loaded or switched meanwhile by its owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from typing import Any, NamedTuple, Protocol

from bus.errors import OmnibusError
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

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """What a run that begins now would get.

        Args:
            chosen: As for `hold`.

        Raises:
            ModelNotFoundError: Nothing of that name is installed.
            ModelUnsupportedError: The function cannot serve it.
        """

    def hold(self, version: str | None = None, chosen: str | None = None) -> AbstractAsyncContextManager[Held]:
        """The model for the time of a run.

        Args:
            version: `id@version` that the input was made for; None: any will do.
            chosen: Name of the model that the run is for, where its function lets it choose; None: the default.

        Raises:
            ModelNotFoundError: Nothing of that name is installed.
            ModelUnsupportedError: The function cannot serve it.
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

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """What every run gets."""
        return self._held.refs

    @asynccontextmanager
    async def hold(self, version: str | None = None, chosen: str | None = None) -> AsyncIterator[Held]:
        """The model, whatever version the input was made for: its function compares them."""
        yield self._held


class MissingModel:
    """A model that could not be loaded: every run is told why, until its owner has it.

    Args:
        error: Why.
    """

    def __init__(self, error: OmnibusError) -> None:
        self.error = error

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """See `FunctionModel`; raises the error."""
        raise copy(self.error)  # one that is raised again and again collects tracebacks

    @asynccontextmanager
    async def hold(self, version: str | None = None, chosen: str | None = None) -> AsyncIterator[Held]:
        """See `FunctionModel`; raises the error."""
        raise copy(self.error)
        yield  # what makes it a generator


class ResidentModel:
    """A model that a residency loads, evicts and switches.

    Args:
        residency: Its owner.
        name: What it is asked for by.
    """

    def __init__(self, residency: Residency, name: str) -> None:
        self._residency, self._name = residency, name
        self._loading: dict[str | None, _Loading] = {}

    @property
    def loading(self) -> bool:
        """Whether somebody waits for it to be loaded."""
        return bool(self._loading)

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """What a run that begins now would get."""
        return self._residency.refs(self._name)

    @asynccontextmanager
    async def hold(self, version: str | None = None, chosen: str | None = None) -> AsyncIterator[Held]:
        """The model; loaded in a thread when it is not there.

        Args:
            version: `id@version` that the input was made for; None: any will do.
            chosen: Of no meaning here: there is one.

        Raises:
            OverloadedError: (retryable) there is no room to load it, or it is of another version.
            OmnibusError: What loading it raised.
        """
        lease = self._residency.try_lease(self._name, version) or await self._load(version)
        with lease:
            yield Held(lease.model, lease.refs)

    async def _load(self, version: str | None) -> Lease:
        """A lease after a load, which all who come meanwhile wait for in one thread."""
        while True:
            loading = self._loading.get(version) or self._begin(version)
            loading.waiting += 1
            try:
                await asyncio.shield(loading.done)  # a thread cannot be cancelled
                lease = self._residency.try_lease(self._name, version)
            finally:
                loading.waiting -= 1
                if not loading.waiting:  # until then what was loaded stays, so that each of them gets it
                    loading.end()
            if lease is not None:
                return lease

    def _begin(self, version: str | None) -> _Loading:
        # A thread of its own: it may wait for runs to end that need threads of the loop's own.
        thread = ThreadPoolExecutor(1, thread_name_prefix="omnibus-load")
        done = asyncio.get_running_loop().run_in_executor(thread, self._residency.lease, self._name, version)
        thread.shutdown(wait=False)
        loading = self._loading[version] = _Loading(done)
        done.add_done_callback(lambda _: self._loading.pop(version))
        return loading


class _Loading:
    """A load that is under way, and how many wait for it."""

    def __init__(self, done: asyncio.Future[Lease]) -> None:
        self.done = done
        self.waiting = 0

    def end(self) -> None:
        """Give up what was loaded, now or when it is."""
        if self.done.done():
            _give_up(self.done)
        else:
            self.done.add_done_callback(_give_up)


def _give_up(done: asyncio.Future[Lease]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().release(ran=False)
