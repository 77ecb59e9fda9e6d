"""Runs that need not be done again: outputs by function and content of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack
from pydantic import BaseModel

from bus.contracts import Contract, MediaRef, TensorRef
from bus.contracts.codec import digest_of
from bus.errors import PayloadTooLargeError
from bus.ports import KeyValue
from functions.spec import FunctionSpec

_WHERE = {"host", "key", "inline", "name"}
"""Fields of a `TensorRef` or `MediaRef` that say where the content is or what it was called, not what it is."""


class StageCache:
    """Outputs of functions whose outputs depend on their inputs alone."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    def key(self, spec: FunctionSpec, inputs: Contract, models: Sequence[str] = ()) -> str:
        """The same for the same function, version, models and content.

        Args:
            spec: Of the function.
            inputs: Of the run.
            models: The models that it runs, with their versions.
        """
        return f"{spec.name}.{digest_of([spec.digest, list(models), _content(inputs)])[:40]}"

    async def get(self, key: str) -> dict[str, Any] | None:
        """The outputs of a run of the last 24 hours; None when there was none."""
        entry = await self._bucket.get(key)
        if entry is None:
            return None
        outputs: dict[str, Any] = ormsgpack.unpackb(entry[0])
        return outputs

    async def put(self, key: str, outputs: dict[str, Any]) -> None:
        """Remember outputs; those too large for one message are not remembered."""
        try:
            await self._bucket.put(key, ormsgpack.packb(outputs))
        except PayloadTooLargeError:
            return


def _content(value: Any) -> Any:
    if isinstance(value, BaseModel):
        skipped = _WHERE if isinstance(value, (MediaRef, TensorRef)) else frozenset[str]()
        return {name: _content(part) for name, part in value if name not in skipped}
    if isinstance(value, dict):
        return {key: _content(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_content(part) for part in value]
    return value
