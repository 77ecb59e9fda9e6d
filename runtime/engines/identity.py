"""Which model a file belongs to, from the manifest beside it: loose files have no identity."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """A model file that a manifest vouches for.

    Attributes:
        manifest: The model's manifest.
        folder: The model's folder, `<models>/<id>/<version>`.
        digest: Changes with every byte of every file of the model; hex.
    """

    manifest: ModelManifest
    folder: Path
    digest: str


def identify(path: Path) -> Identity | None:
    """The identity of a model file; None for a file that no manifest lists.

    No file is read but the manifest: sizes are compared, digests are believed, as `omnibus models verify` checks them.

    Raises:
        ModelCorruptError: A file of the model is missing or has another size than the manifest says.
    """
    folder = path.parent
    try:
        manifest = ModelManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    if all(file.path != path.name for file in manifest.files):
        return None
    for file in manifest.files:
        place = folder / file.path
        size = place.stat().st_size if place.is_file() else None
        if size != file.nbytes:
            have = "is missing" if size is None else f"has {size} bytes instead of {file.nbytes}"
            raise ModelCorruptError(
                f"file {file.path!r} of model {manifest.ref} {have}; "
                f"run `omnibus models verify {manifest.id} --repair`",
                model=manifest.ref,
                file=file.path,
            )
    return Identity(manifest, folder, content_digest(manifest))


def content_digest(*manifests: ModelManifest) -> str:
    """Changes with every byte of every file of the models; hex."""
    listed = sorted(f"{file.path} {file.sha256}" for manifest in manifests for file in manifest.files)
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()
