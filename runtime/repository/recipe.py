"""The agreement between the repository and the code that builds a served model out of raw weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bus.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """What a build recipe gets.

    Attributes:
        raw: Folder with the raw files under the paths that the catalog gives them.
        out: Empty folder to write the served files into.
        parameters: The catalog entry's parameters.
        needs: Folders of the models that the entry needs, by the name that the entry uses.
    """

    raw: Path
    out: Path
    parameters: Mapping[str, Any]
    needs: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a recipe found out; added to the manifest.

    Attributes:
        dims: Sizes by name.
        parameters: Whatever the family's code needs to know; wins over the catalog's parameters.
        memory_nbytes: Memory need, where it was measured.
        baseline_ms: Latency of a reference input, where it was measured.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    memory_nbytes: int | None = None
    baseline_ms: float | None = None


Recipe = Callable[[BuildJob], Built]


def recipe(name: str) -> Recipe:
    """The recipe of a dotted name such as `runtime.graphs.whisper:build`, imported now.

    Raises:
        InvalidInputError: No such module or function.
    """
    module, _, attribute = name.partition(":")
    try:
        return cast(Recipe, getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"build recipe {name!r} cannot be loaded: {error}", recipe=name) from error
