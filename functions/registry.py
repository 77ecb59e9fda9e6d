"""The functions that this process knows."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from bus.errors import ContractError, UnknownFunctionError
from functions.spec import FunctionSpec


class Registry:
    """Functions by name."""

    def __init__(self) -> None:
        self._specs: dict[str, FunctionSpec] = {}
        self._loaded: set[str] = set()

    def add(self, spec: FunctionSpec) -> None:
        """Register a function.

        Raises:
            ContractError: The name is taken by another handler.
        """
        known = self._specs.get(spec.name)
        if known is not None and _place(known) != _place(spec):
            raise ContractError(
                f"function {spec.name!r} is declared twice: in {known.handler.__module__} and in "
                f"{spec.handler.__module__}; give one of them another name"
            )
        self._specs[spec.name] = spec

    def get(self, name: str) -> FunctionSpec:
        """The function of that name.

        Raises:
            UnknownFunctionError: With the nearest names.
        """
        if name not in self._specs:
            near = get_close_matches(name, self._specs, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(self._specs)) or 'none'}"
            raise UnknownFunctionError(f"no function {name!r}{hint}", function=name)
        return self._specs[name]

    def __iter__(self) -> Iterator[FunctionSpec]:
        return iter(sorted(self._specs.values(), key=lambda spec: spec.name))

    def load(self, package: str) -> None:
        """Import a module or every module below a package, so that its functions register."""
        if package in self._loaded:  # a worker has what its template has imported
            return
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}."):
            importlib.import_module(found.name)
        self._loaded.add(package)


def _place(spec: FunctionSpec) -> tuple[str, str]:
    # By name, so that a module that is loaded again, or a handler that is wrapped, is still the same.
    return spec.handler.__module__, spec.handler.__qualname__


registry = Registry()
"""The process's own registry; `@function` adds to it."""


def load_functions(modules: Iterable[str] = ()) -> Registry:
    """Register the built-in stages and the functions of other packages; the process's registry."""
    for package in ("functions.stages", *modules):
        registry.load(package)
    return registry
