"""The models that this deployment's workers have announced, mirrored from the bus so that asking costs nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from bus.contracts import ModelManifest
from bus.contracts.codec import decode
from bus.errors import ContractError
from bus.mirror import Mirror
from bus.ports import KeyValue
from bus.subjects import MODEL_TTL_S

log = logging.getLogger("omnibus.gateway")


class InstalledModels(Mirror):
    """Announced manifests, whose `aliases` are the names that mean them. Use as a context manager.

    Args:
        bucket: Where models are announced.
        clock: Seconds, from anywhere.
    """

    def __init__(self, bucket: KeyValue, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(bucket)
        self._clock = clock
        self._known: dict[str, tuple[ModelManifest, float]] = {}

    def __iter__(self) -> Iterator[ModelManifest]:
        """Every model that a worker has announced lately, by id and version."""
        now_s = self._clock()
        found = [manifest for manifest, heard_s in self._known.values() if now_s - heard_s <= MODEL_TTL_S]
        return iter(sorted(found, key=lambda one: (one.id, one.version)))

    def _on_change(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._known.pop(key, None)
            return
        try:
            # Entries expire without a word; when this one was written is told by when it was heard of, and no sooner.
            self._known[key] = decode(ModelManifest, value), self._clock()
        except ContractError as error:  # of a newer worker
            log.warning("model %s is not understood: %s", key, error)
