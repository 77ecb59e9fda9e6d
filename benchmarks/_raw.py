"""The raw files that a model was built from, for peers that take them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runtime.repository import Repository
from runtime.repository.archive import copy_member
from runtime.repository.source import Source
from runtime.repository.sources import FETCHERS, Wanted


def raw_files(repository: Repository, model: str, folder: Path, more: Mapping[str, str] | None = None) -> Path:
    """Put the raw files of a catalog model into a folder, out of the downloads.

    Args:
        repository: Knows the catalog and the downloads.
        model: Id in the catalog.
        folder: Gets them.
        more: Files that ours leaves out: their paths by the name of the file in the same package that they lie beside.
    """
    for raw in repository.catalog.get(model).sources:
        source = Source.parse(raw.source)
        wanted = [(file.member, file.path) for file in raw.files]
        for member, path in tuple(wanted):
            beside = (more or {}).get(path)
            if beside is not None:
                wanted.append((member.removesuffix(path) + beside, beside))
        members = tuple(member for member, _ in wanted)
        archive = FETCHERS[source.scheme](
            Wanted(source=source, members=members, downloads=repository.downloads, sha256=raw.sha256)
        )
        for member, path in wanted:
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("ab") as out:
                copy_member(archive, member, out)
    return folder
