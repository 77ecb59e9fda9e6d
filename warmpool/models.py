"""The models of a worker's functions: loaded at the start where there is room, switched when their names change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError, OmnibusError, WorkerStartError
from functions.choosing import ChoosingModel
from functions.model import FunctionModel, LoadedModel, ResidentModel
from functions.spec import FunctionSpec
from runtime.engines.identity import content_digest
from runtime.repository import Repository
from runtime.repository.fixed_names import FixedNames
from runtime.residency.entry import ModelSource
from runtime.residency.residency import Residency

log = logging.getLogger("omnibus.models")

_LOOK_EVERY_S = 1.0
_LINGER_S = 30.0
"""For events that are on their way from a stage that ran on the old version."""

Announce = Callable[[ModelManifest], Awaitable[None]]


class WorkerModels:
    """Keeps the models of several functions under one budget.

    Args:
        repository: Where models come from.
        residency: Where they are kept.
        announce: Called with every model that is served, when it begins to be and now and then.
        pinned: Functions and models whose memory is never taken for another one.

    Attributes:
        changes: Grows when `watch` has seen that what is installed, or what its names mean, has changed.
    """

    def __init__(
        self, repository: Repository, residency: Residency, announce: Announce, pinned: Sequence[str] = ()
    ) -> None:
        self._repository, self._residency, self._announce = repository, residency, announce
        self._pinned = frozenset(pinned)
        self._specs: list[FunctionSpec] = []
        self._keys: dict[str, str] = {}
        self._announced: dict[str, str] = {}
        self._choosing: list[ChoosingModel] = []
        self._told: dict[str, int] = {}
        self.changes = 0

    @property
    def resident(self) -> dict[str, int]:
        """Bytes that the models in memory now take, runs included, by what they are made of; else by their function."""
        nbytes: dict[str, int] = {}
        for one in self._residency.residents():
            key = "+".join(one.refs) or one.name
            nbytes[key] = nbytes.get(key, 0) + one.nbytes  # of two functions that share it the first one has it all
        return nbytes

    async def add(self, spec: FunctionSpec) -> FunctionModel:
        """Load a function's model; one that others would have to leave for is loaded when it is first used.

        What is pinned is loaded now, whoever has to leave for it. What could not be added can be added again.

        Raises:
            OmnibusError: A model that is not installed or does not load.
        """
        if spec.setup is None:
            return LoadedModel(None)
        try:
            return await self._add(spec)
        except BaseException:
            self._specs = [one for one in self._specs if one is not spec]
            self._residency.remove(spec.name)
            raise

    async def _add(self, spec: FunctionSpec) -> FunctionModel:
        default = await self._add_default(spec) if spec.models or spec.choice is None else None
        if spec.choice is None:
            return default or LoadedModel(None)
        source = partial(self._chosen_source, spec, spec.choice.name)
        choosing = ChoosingModel(spec, spec.choice, self._repository, self._residency, source, default)
        for name in self._pinned:
            await choosing.pin(name)
        self._choosing.append(choosing)
        return choosing

    async def _add_default(self, spec: FunctionSpec) -> FunctionModel:
        manifests, source = await asyncio.to_thread(self._source, spec)
        pinned = await asyncio.to_thread(self._is_pinned, spec, manifests)
        self._residency.add(spec.name, source, pinned=pinned)
        await asyncio.to_thread(self._residency.warm, spec.name)
        self._specs.append(spec)
        self._keys[spec.name] = source.key
        await self._tell(spec, manifests)
        return ResidentModel(self._residency, spec.name)

    async def watch(self) -> None:
        """Look for names that mean another version than before, and switch to it, until cancelled."""
        looked: tuple[int, ...] | None = None
        seen: tuple[int, ...] | None = None  # the first look finds what changed since the start
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.to_thread(self._look_after)
            stamp = await asyncio.to_thread(self._stamp)
            if stamp != looked:
                looked = stamp
                self.changes += 1
            if stamp != seen and await self._switch_all():
                seen = stamp
                for choosing in self._choosing:
                    await choosing.refresh()

    async def _switch_all(self) -> bool:
        """Switch every function whose model changed; tells whether nothing is left to be tried again."""
        done = True
        # First those whose inputs were made for a version: they serve both, and so are ready for what comes.
        for spec in sorted(self._specs, key=lambda spec: spec.made_for is None):
            try:
                await self._switch(spec)
            except OmnibusError as error:
                log.error("%s goes on with the version that it has: %s", spec.name, error)
                done = done and not error.retryable
            except Exception:  # of a deployer's own setup: no reason to look after the others no more
                log.exception("%s goes on with the version that it has", spec.name)
        return done

    async def _switch(self, spec: FunctionSpec) -> None:
        manifests, source = await asyncio.to_thread(self._source, spec)
        if source.key != self._keys[spec.name]:
            await asyncio.to_thread(self._residency.switch, spec.name, source, linger_s=_LINGER_S)
            self._keys[spec.name] = source.key
        if source.key != self._announced[spec.name]:
            await self._tell(spec, manifests)

    def _source(self, spec: FunctionSpec) -> tuple[list[ModelManifest], ModelSource]:
        manifests = {name: self._repository.resolve(name) for name in spec.models}
        return list(manifests.values()), self._source_of(spec, manifests)

    def _chosen_source(self, spec: FunctionSpec, name: str, chosen: ModelManifest) -> ModelSource:
        others = {other: self._repository.resolve(other) for other in spec.models if other != name}
        return self._source_of(spec, {name: chosen, **others})

    def _source_of(self, spec: FunctionSpec, manifests: Mapping[str, ModelManifest]) -> ModelSource:
        return ModelSource(
            refs=tuple(one.ref for one in manifests.values()),
            load=lambda: self._load(spec, manifests),
            key=f"{spec.name} {content_digest(*manifests.values())[:24]} cpu",
            estimate_nbytes=sum(file.nbytes for one in manifests.values() for file in one.files),
        )

    def _is_pinned(self, spec: FunctionSpec, manifests: Sequence[ModelManifest]) -> bool:
        if not self._pinned.isdisjoint({spec.name, *spec.models, *(one.id for one in manifests)}):
            return True
        for name in self._pinned:
            with suppress(ModelNotFoundError):  # a function of another worker
                if self._repository.resolve(name) in manifests:
                    return True
        return False

    def _load(self, spec: FunctionSpec, manifests: Mapping[str, ModelManifest]) -> Any:
        if spec.setup is None:
            return None
        # It may be loaded long after its names were looked up, and is to be what its runs say that it is.
        return spec.setup(FixedNames(self._repository, manifests))

    def _stamp(self) -> tuple[int, ...]:
        try:
            return self._repository.stamp()
        except (OmnibusError, OSError) as error:
            log.error("the models folder cannot be read: %s", error)
            return ()

    async def _tell(self, spec: FunctionSpec, manifests: Sequence[ModelManifest]) -> None:
        for manifest in manifests:
            await self._announce(manifest)
        self._announced[spec.name] = self._keys[spec.name]

    def _look_after(self) -> None:
        """Let old versions go, and write into manifests what their models were found to take."""
        self._residency.sweep()
        for one in self._residency.residents():
            if len(one.refs) == 1 and self._told.get(one.refs[0], 0) < one.nbytes:
                self._told[one.refs[0]] = one.nbytes
                with suppress(OmnibusError, OSError):  # it may have been removed
                    self._repository.remember_memory(self._repository.resolve(one.refs[0]), one.nbytes)


def check_pinned(pinned: Collection[str], functions: Collection[str], repository: Repository) -> None:
    """Look whether everything that is to stay in memory is something.

    Args:
        pinned: Names of functions and models.
        functions: Every function, of other workers, too.
        repository: Where models are.

    Raises:
        WorkerStartError: Names what is neither.
    """
    for name in sorted(set(pinned) - set(functions)):
        try:
            repository.resolve(name)
        except ModelNotFoundError as error:
            raise WorkerStartError(f"OMNIBUS_PINNED: {name!r} is no function here, and {error.message}") from error
