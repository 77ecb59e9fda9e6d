"""Which models a worker's functions serve, told to whoever names one: the gateway has no models folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from bus.contracts import ModelManifest
from bus.contracts.codec import encode
from bus.errors import ModelNotFoundError, OmnibusError
from bus.ports import KeyValue
from bus.subjects import MODEL_TTL_S
from functions.spec import FunctionSpec
from runtime.repository import Repository

log = logging.getLogger("omnibus.models")

_LOOK_EVERY_S = 1.0
_LOOKS = int(MODEL_TTL_S / 3 / _LOOK_EVERY_S)
"""Looks after which everything is told again, changed or not."""


class Announcer:
    """Announces every installed model that one of the functions can serve, by what all names mean now.

    An announced manifest's `aliases` are the names that mean it, its own id among them where that does.

    Args:
        bucket: Where models are announced.
        repository: Where they are installed.
        specs: The functions.
    """

    def __init__(self, bucket: KeyValue, repository: Repository, specs: Sequence[FunctionSpec]) -> None:
        self._bucket, self._repository, self._specs = bucket, repository, specs
        self._told: dict[str, ModelManifest] = {}
        self._changed = asyncio.Event()

    def soon(self) -> None:
        """Have `watch` announce what there is without waiting for its next look."""
        self._changed.set()

    async def tell(self, *, again: bool = False) -> None:
        """Announce what is new or changed, and take back what is gone.

        Args:
            again: Announce the rest, too, so that it does not expire.

        Raises:
            BusUnavailableError: (retryable) the bus does not answer.
            ModelCorruptError: An installed manifest cannot be read.
        """
        found = {_key(one): one for one in await asyncio.to_thread(self._served)}
        for key, manifest in found.items():
            if again or self._told.get(key) != manifest:
                await self._bucket.put(key, encode(manifest))
        for key in self._told.keys() - found.keys():
            await self._bucket.delete(key)
        self._told = found

    async def watch(self) -> None:
        """Look for changes of the models folder, and announce them, until cancelled."""
        seen: tuple[int, ...] | None = None
        looks = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._changed.wait()
            if self._changed.is_set():
                self._changed.clear()
                seen = None
            looks += 1
            try:
                stamp = await asyncio.to_thread(self._repository.stamp)
                if stamp != seen or looks % _LOOKS == 0:
                    await self.tell(again=looks % _LOOKS == 0)
                seen = stamp
            except (OmnibusError, OSError) as error:
                log.warning("models were not announced: %s", error)

    def _served(self) -> list[ModelManifest]:
        installed = self._repository.list()
        names = {name for one in installed for name in (one.id, *one.aliases)}
        meant: dict[str, tuple[ModelManifest, list[str]]] = {}
        for name in sorted(names.union(self._repository.aliases.read())):
            try:
                manifest = self._repository.resolve(name)
            except ModelNotFoundError:  # an alias of a model that was removed
                continue
            meant.setdefault(manifest.ref, (manifest, []))[1].append(name)
        return [
            manifest.model_copy(update={"aliases": tuple(names)})
            for manifest, names in meant.values()
            if any(_serves(spec, manifest, names) for spec in self._specs)
        ]


def _serves(spec: FunctionSpec, manifest: ModelManifest, names: Sequence[str]) -> bool:
    if spec.choice is not None and spec.choice.serves(manifest):
        return True
    return not set(names).isdisjoint(spec.models)


def _key(manifest: ModelManifest) -> str:
    # A dot would part a subject, and no key has an at; neither sign that takes their place is in a name.
    return manifest.ref.replace(".", "=").replace("@", "/")
