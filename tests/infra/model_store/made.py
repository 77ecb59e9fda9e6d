"""Models that were built on a machine, of a few files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bus.contracts import ModelFile, ModelManifest
from runtime.repository import Repository

WEIGHTS = bytes(range(251)) * 4001


CONFIG = b'{"layers": 2}'


def install(
    root: Path, model: str = "mine", version: str = "1", weights: bytes = WEIGHTS, **more: object
) -> Repository:
    """A repository with a model that was built there."""
    folder = root / model / version
    (folder / "tokens").mkdir(parents=True)
    files = {"model.bin": weights, "tokens/config.json": CONFIG, "empty": b""}
    for path, data in files.items():
        (folder / path).write_bytes(data)
    manifest = ModelManifest(
        id=model,
        version=version,
        family="test",
        modalities_in=("text",),
        modalities_out=("text",),
        files=tuple(
            ModelFile(path=path, sha256=hashlib.sha256(data).hexdigest(), nbytes=len(data))
            for path, data in sorted(files.items())
        ),
        source=("file:///elsewhere",),
        license="MIT",
    ).model_copy(update=more)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Repository(root)


def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "models"
