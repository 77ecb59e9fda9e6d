"""The manifest beside a model's files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError
from runtime.repository.download import sha256_of
from runtime.repository.pull import MANIFEST

log = logging.getLogger("omnibus.repository")


def read_manifest(folder: Path) -> ModelManifest | None:
    """The manifest of a version's folder; None when there is none.

    Raises:
        ModelCorruptError: It is there and cannot be read.
    """
    path = folder / MANIFEST
    try:
        return ModelManifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelCorruptError(f"{path} cannot be read: {error.strerror}; give this user the right to") from error
    except ValidationError as error:
        raise ModelCorruptError(f"{path} is not a model manifest: {error}; remove the folder and pull again") from error


def complete(folder: Path) -> ModelManifest | None:
    """The manifest of a version whose files are all there, as long as they should be; None: it is not."""
    manifest = read_manifest(folder)
    places = () if manifest is None else ((folder / file.path, file.nbytes) for file in manifest.files)
    return manifest if all(place.is_file() and place.stat().st_size == nbytes for place, nbytes in places) else None


def problems_of(manifest: ModelManifest, folder: Path) -> Iterator[str]:
    """What is wrong with the files of a version, one sentence each."""
    for file in manifest.files:
        place = folder / file.path
        if not place.is_file():
            yield f"{file.path} is missing"
        elif place.stat().st_size != file.nbytes:
            yield f"{file.path} has {place.stat().st_size} bytes, expected {file.nbytes}"
        elif sha256_of(place) != file.sha256:
            yield f"{file.path} has other bytes than when it was built"


def update_manifest(folder: Path, **changes: int) -> None:
    """Replace fields of a manifest; where the folder cannot be written, nothing happens.

    The folder is opened once, so that a model that is made again meanwhile never gets the manifest of the old one.
    """
    try:
        place = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with open(os.open(MANIFEST, os.O_RDONLY, dir_fd=place), "rb") as file:
            known = ModelManifest.model_validate_json(file.read())
        fresh = f".{MANIFEST}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=place), "wb") as file:
            file.write(known.model_copy(update=changes).model_dump_json(indent=2).encode())
        os.replace(fresh, MANIFEST, src_dir_fd=place, dst_dir_fd=place)
    except (OSError, ValidationError) as error:
        log.info("the manifest in %s stays as it is: %s", folder, error)
    finally:
        os.close(place)
