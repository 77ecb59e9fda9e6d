"""The pipelines of a deployment, and their plans on the bus."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from bus.contracts.codec import decode, encode
from bus.errors import ContractError, PipelineInvalidError, UnknownPipelineError
from bus.ports import KeyValue
from functions.flow.parse import parse_file
from functions.flow.plan import Plan
from functions.registry import Registry

BUILT_IN = Path(__file__).parent.parent / "pipelines"
"""The folder of the pipelines that come with the project."""


class Pipelines:
    """Plans by pipeline name."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._plans = {plan.pipeline: plan for plan in plans}

    @classmethod
    def load(cls, registry: Registry, folders: Iterable[Path | str] = (BUILT_IN,)) -> Pipelines:
        """Every `*.yaml` of the folders; a later folder replaces pipelines of an earlier one.

        Raises:
            PipelineInvalidError: A file that does not compile, or a folder that is not there.
        """
        searched = [Path(os.fspath(folder)) for folder in folders]
        for folder in searched:
            if not folder.is_dir():
                raise PipelineInvalidError(f"no folder {folder} of pipelines; name one that is there", path=str(folder))
        paths = [path for folder in searched for path in sorted(folder.glob("*.yaml"))]
        return cls(_parsed(path, path.stat().st_mtime_ns, path.stat().st_size, registry) for path in paths)

    def get(self, name: str) -> Plan:
        """The plan of a pipeline.

        Raises:
            UnknownPipelineError: With the nearest name.
        """
        if name not in self._plans:
            near = get_close_matches(name, self._plans, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(self._plans)) or 'none'}"
            raise UnknownPipelineError(f"no pipeline {name!r}; {hint}", pipeline=name)
        return self._plans[name]

    def __iter__(self) -> Iterator[Plan]:
        return (self._plans[name] for name in sorted(self._plans))

    async def announce(self, bucket: KeyValue) -> None:
        """Write every plan to the bus, so that workers find it by its digest."""
        await asyncio.gather(*(bucket.put(plan.digest, encode(plan)) for plan in self._plans.values()))


@lru_cache(maxsize=1024)
def _parsed(path: Path, mtime_ns: int, nbytes: int, registry: Registry) -> Plan:
    """The plan in a file as it is now; workers have what their template has read."""
    return parse_file(path, registry)


class PlanCache:
    """Plans by digest, read from the bus once."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket
        self._plans: dict[str, Plan] = {}

    async def get(self, digest: str) -> Plan:
        """The plan of a digest.

        Raises:
            UnknownPipelineError: Nobody announced it, it was forgotten, or another release has written it.
        """
        if digest not in self._plans:
            entry = await self._bucket.get(digest)
            if entry is None:
                raise UnknownPipelineError(f"no plan {digest[:12]}… on the bus: its pipeline was never announced")
            try:
                self._plans[digest] = decode(Plan, entry[0])
            except ContractError as error:
                raise UnknownPipelineError(f"plan {digest[:12]}… on the bus cannot be read here: {error}") from error
        return self._plans[digest]
