"""Models in an object store: published by the machine that has them, fetched by machines that have none.

Below the store's prefix a version is what it is in a models folder, `<id>/<version>/…`. Its manifest is written last,
so what has one is whole.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from pydantic import ValidationError

from bus.contracts import ModelFile, ModelManifest
from bus.errors import EngineError, InvalidInputError, ModelCorruptError, ModelNotFoundError, ObjectMissingError
from runtime.repository.download import download
from runtime.repository.location import INCOMING
from runtime.repository.manifest_file import complete
from runtime.repository.partfile import FULL, PENDING
from runtime.repository.progress import Progress, Step, silent
from runtime.repository.pull import MANIFEST, publish_folder
from runtime.repository.repository import Repository, is_id, natural
from runtime.repository.sources import http_client

log = logging.getLogger("omnibus.models")


class ModelShelf(Protocol):
    """Where published models can be read. Every call may raise a `StoreError`."""

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Every key that starts with the prefix."""

    def get(self, key: str) -> bytes:
        """The bytes of the key."""

    def signed_url(self, key: str) -> str:
        """Where the object, or ranges of it, can be had over HTTP for some hours."""


class ModelStore(ModelShelf, Protocol):
    """Where models can be published, too."""

    def put(self, key: str, data: bytes) -> None:
        """Store the bytes."""

    def put_file(self, key: str, path: Path) -> None:
        """Store a file."""

    def nbytes(self, key: str) -> int | None:
        """Size of the object; None: there is none."""


def publish(repository: Repository, name: str, store: ModelStore, progress: Progress = silent) -> ModelManifest:
    """Put an installed model into a store; what is there already is left alone, and what is missing of it is put back.

    Args:
        repository: Has the model.
        name: Id, `id@version` or alias.
        store: Where to.
        progress: Told about every file.

    Raises:
        ModelNotFoundError: Not installed.
        ModelCorruptError: Its files are damaged.
        InvalidInputError: The store has another model of that id and version.
        StoreError: (partly retryable) the store cannot be written.
    """
    manifest = repository.resolve(name)
    if problems := repository.verify(manifest.ref):
        raise ModelCorruptError(
            f"{manifest.ref} is not published: {'; '.join(problems)}; run `omnibus models verify --repair`",
            model=manifest.ref,
        )
    place = f"{manifest.id}/{manifest.version}"
    known = _read(store, manifest.id, manifest.version)
    if known is not None and known.files != manifest.files:
        raise InvalidInputError(
            f"the store has another {manifest.ref}; a version never changes once it is published: build this one "
            "again under another id, or remove that one from the store",
            model=manifest.ref,
        )
    for file in manifest.files:
        if known is None or store.nbytes(f"{place}/{file.path}") != file.nbytes:
            progress(Step(manifest.id, "upload", file.path, 0, file.nbytes))
            store.put_file(f"{place}/{file.path}", repository.file(manifest, file.path))
            progress(Step(manifest.id, "upload", file.path, file.nbytes, file.nbytes))
    if known is None:
        store.put(f"{place}/{MANIFEST}", manifest.model_dump_json(indent=2).encode())
    progress(Step(manifest.id, "ready"))
    return manifest


def fetch(repository: Repository, name: str, store: ModelShelf, progress: Progress = silent) -> ModelManifest:
    """Install a model out of a store: file by file into the models folder, then all of it at once by a rename.

    What was fetched before an interruption is gone on with, and processes that want the same model do it once.

    Args:
        repository: Where the model is to be.
        name: Id (the newest version in the store), `id@version`, or an alias that a published model brought with it.
        store: Where from.
        progress: Told about every file.

    Raises:
        ModelNotFoundError: The store has no such model.
        ModelCorruptError: What it has is no model, or its bytes do not match their digests.
        ModelSourceError: (mostly retryable) the store does not send it.
        StoreError: (partly retryable) the store cannot be read.
        EngineError: The models folder cannot be written, or has no room for it.
    """
    manifest = _find(repository, name, store)
    target = repository.folder(manifest)
    if (known := complete(target)) is None:
        with repository.held(manifest.id):
            if (known := complete(target)) is None:
                _bring(repository, manifest, store, progress)
    progress(Step(manifest.id, "ready"))
    return known or manifest


def _find(repository: Repository, name: str, store: ModelShelf) -> ModelManifest:
    wanted, _, version = repository.canonical(name).partition("@")
    versions = {version} if version else {found for model, found in _versions(store, wanted) if model == wanted}
    for one in sorted(versions, key=natural, reverse=True):
        if (manifest := _read(store, wanted, one)) is not None:
            return manifest
    for model, found in sorted(_versions(store), key=lambda each: natural(each[1]), reverse=True):
        try:
            manifest = _read(store, model, found)
        except (ModelCorruptError, InvalidInputError) as error:  # of a model that nobody has asked for
            log.warning("passed over: %s", error)
            continue
        if manifest is not None and name in manifest.aliases:
            return manifest
    known = ", ".join(sorted({model for model, _ in _versions(store)})) or "none"
    raise ModelNotFoundError(
        f"no model {name!r} is in the store; it has: {known}; put it there with `omnibus models push`", model=name
    )


def _versions(store: ModelShelf, model: str = "") -> Iterator[tuple[str, str]]:
    """Id and version of everything that is published."""
    for key in store.keys(f"{model}/" if model else ""):
        match key.split("/"):
            case [found, version, last] if last == MANIFEST:
                yield found, version


def _read(store: ModelShelf, model: str, version: str) -> ModelManifest | None:
    try:
        manifest = ModelManifest.model_validate_json(store.get(f"{model}/{version}/{MANIFEST}"))
    except ObjectMissingError:
        return None
    except ValidationError as error:
        raise ModelCorruptError(f"the store's {model}@{version} has no manifest that can be read: {error}") from error
    # What a store says is used as names of folders and files here.
    if (
        not (is_id(model) and is_id(version))
        or (manifest.id, manifest.version) != (model, version)
        or len({file.path for file in manifest.files}) < len(manifest.files)
        or not all(_is_inside(file.path) for file in manifest.files)
    ):
        raise ModelCorruptError(f"the store's {model}@{version} is of another model, or has files outside its folder")
    return manifest


def _is_inside(path: str) -> bool:
    """Whether it is a file of a model's folder, and none that a download makes there for itself."""
    place = PurePosixPath(path)
    return (
        path.isprintable()
        and not place.is_absolute()
        and ".." not in place.parts
        and place.name not in ("", MANIFEST)
        and not place.name.endswith((".lock", *PENDING))
    )


def _bring(repository: Repository, manifest: ModelManifest, store: ModelShelf, progress: Progress) -> None:
    # Only the holder of this model's lock fetches it, so whatever else is there was left by a dead process.
    folder = repository.root / INCOMING / manifest.id / manifest.version
    for other in folder.parent.iterdir() if folder.parent.is_dir() else ():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _check_room(manifest, folder)
        for file in manifest.files:
            _download(repository, manifest, file, folder, store, progress)
    except EngineError as error:
        # Without room for all of it, none is taken by what was fetched of it either.
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    for lock in folder.rglob(".*.lock"):
        lock.unlink()
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    old = folder.with_name(f"{folder.name}.old")
    publish_folder(folder, repository.folder(manifest), old)
    shutil.rmtree(old, ignore_errors=True)


def _download(
    repository: Repository,
    manifest: ModelManifest,
    file: ModelFile,
    folder: Path,
    store: ModelShelf,
    progress: Progress,
) -> None:
    def on_bytes(name: str, done: int, total: int | None) -> None:
        progress(Step(manifest.id, "download", file.path, done, total))

    with http_client(of_system=True) as client:
        download(
            store.signed_url(f"{manifest.id}/{manifest.version}/{file.path}"),
            folder / file.path,
            client=client,
            sha256=file.sha256,
            nbytes=file.nbytes,
            config=repository.transfer,
            on_bytes=on_bytes,
        )


def _check_room(manifest: ModelManifest, folder: Path) -> None:
    """Refuse a model that the disk cannot hold before anything of it is read."""
    taken = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
    needed, free = sum(file.nbytes for file in manifest.files), shutil.disk_usage(folder).free
    if needed > taken + free:
        raise EngineError(
            f"{manifest.ref} takes {needed / 1e6:.0f} MB, and {folder.parents[2]} has room for "
            f"{(taken + free) / 1e6:.0f} MB; make room there, or set OMNIBUS_MODELS to another folder",
            model=manifest.ref,
        )
