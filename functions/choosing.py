"""A function's models where each run says which one it is for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError, ModelUnsupportedError, OmnibusError
from functions.model import FunctionModel, Held, ResidentModel
from functions.spec import FunctionSpec, ModelChoice
from runtime.repository import Repository
from runtime.residency.entry import ModelSource
from runtime.residency.residency import Residency

_MOST_NAMES = 256
"""Names whose meaning is remembered; a client can invent any number of them."""


@dataclass(frozen=True, slots=True)
class _Meant:
    """What a name means: a model, and whether that is the function's default."""

    manifest: ModelManifest
    default: bool


class ChoosingModel:
    """The `FunctionModel` of a function with a choice.

    The default is somebody else's; any other model is declared to the residency by the first run that asks for it, and
    so is loaded, kept and evicted under the same budget as all of them.

    Args:
        spec: Of the function.
        choice: Its choice.
        repository: Where models are.
        residency: Their owner.
        source: How a chosen model is loaded.
        default: The model of runs that choose none; None: they must choose.
    """

    def __init__(
        self,
        spec: FunctionSpec,
        choice: ModelChoice,
        repository: Repository,
        residency: Residency,
        source: Callable[[ModelManifest], ModelSource],
        default: FunctionModel | None,
    ) -> None:
        self._spec, self._choice, self._repository, self._residency = spec, choice, repository, residency
        self._source, self._default = source, default
        self._meant: dict[str, _Meant] = {}
        self._chosen: dict[str, ResidentModel] = {}
        self._pinned: set[str] = set()

    async def refs(self, chosen: str | None = None) -> tuple[str, ...]:
        """See `FunctionModel`."""
        model, version = await self._model(chosen)
        refs = await model.refs()
        return refs if version is None or version in refs else (version,)

    @asynccontextmanager
    async def hold(self, version: str | None = None, chosen: str | None = None) -> AsyncIterator[Held]:
        """See `FunctionModel`."""
        async with await self._held(version, chosen) as held:
            yield held

    async def pin(self, name: str) -> None:
        """Load a model now, whoever has to leave for it, and keep it; one that cannot be served here is let be.

        Raises:
            OmnibusError: What loading it raised.
        """
        try:
            meant = await asyncio.to_thread(self._look_up, name)
        except (ModelNotFoundError, ModelUnsupportedError):
            return
        if not meant.default:
            self._pinned.add(meant.manifest.ref)
            self._declared(meant.manifest)
            await asyncio.to_thread(self._residency.warm, self._entry(meant.manifest.ref))

    async def refresh(self) -> None:
        """Look again what the names mean; models that none of them means any more leave with their last run."""
        for name in list(self._meant):
            try:
                self._meant[name] = await asyncio.to_thread(self._look_up, name)
            except OmnibusError:  # told to whoever asks for it next
                self._meant.pop(name, None)
        kept = {one.manifest.ref for name, one in self._meant.items() if not one.default and name != one.manifest.ref}
        for ref in self._chosen.keys() - self._pinned:
            unmeant = ref not in kept and not await asyncio.to_thread(self._is_current, ref)
            if unmeant and not self._chosen[ref].loading:
                del self._chosen[ref]
                self._residency.remove(self._entry(ref))

    async def _held(self, version: str | None, chosen: str | None) -> AbstractAsyncContextManager[Held]:
        model, exact = await self._model(chosen)
        return model.hold(exact or version)

    async def _model(self, chosen: str | None) -> tuple[FunctionModel, str | None]:
        """Where a run gets its model, and the version that it must be."""
        if chosen is None:
            if self._default is None:
                raise ModelNotFoundError(f"{self._spec.name} has no model of its own; name one", param="model")
            return self._default, None
        meant = self._meant.get(chosen)
        if meant is None:
            meant = await asyncio.to_thread(self._look_up, chosen)
            self._meant[chosen] = meant
            while len(self._meant) > _MOST_NAMES:
                del self._meant[next(iter(self._meant))]
        ref = meant.manifest.ref
        if self._default is not None and (meant.default or self._is_resident_default(ref)):
            return self._default, ref
        return self._declared(meant.manifest), ref

    def _declared(self, manifest: ModelManifest) -> ResidentModel:
        ref = manifest.ref
        if ref not in self._chosen:
            self._residency.add(self._entry(ref), self._source(manifest), pinned=ref in self._pinned)
            self._chosen[ref] = ResidentModel(self._residency, self._entry(ref))
        return self._chosen[ref]

    def _look_up(self, name: str) -> _Meant:
        manifest = self._choice.find(self._repository, name)
        return _Meant(manifest, self._default is not None and self._choice.means(self._repository, manifest))

    def _is_resident_default(self, ref: str) -> bool:
        """Whether it is, or was until a moment ago, the default."""
        return any(one.name == self._spec.name and ref in one.refs for one in self._residency.residents())

    def _is_current(self, ref: str) -> bool:
        """Whether a model's own name means this version of it, and it is not the default, which is held apart."""
        try:
            meant = self._look_up(ref.partition("@")[0])
        except OmnibusError:
            return False
        return meant.manifest.ref == ref and not meant.default

    def _entry(self, ref: str) -> str:
        return f"{self._spec.name} {ref}"
