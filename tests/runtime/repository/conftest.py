from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.repository import Catalog, CatalogEntry, Repository, TransferConfig
from tests.runtime.repository.index_server import IndexServer, wheel

WEIGHTS = bytes(range(256)) * 2048
LICENCE = b"Do as you like."


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """An index with one package, `tiny-weights` 1.0, which pip's settings point to."""
    with IndexServer() as server:
        weights = wheel({"tiny_weights/model.bin": WEIGHTS, "tiny_weights/LICENSE": LICENCE})
        server.offer("tiny_weights-1.0-py3-none-any.whl", weights)
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        yield server


def entry(**changes: object) -> CatalogEntry:
    fields: dict[str, object] = {
        "id": "tiny",
        "version": "1",
        "family": "test",
        "summary": "A few bytes",
        "license": "MIT",
        "aliases": ["small"],
        "sets": ["demo"],
        "sources": [
            {
                "source": "pypi://tiny-weights==1.0",
                "files": [
                    {"member": "tiny_weights/model.bin", "path": "model.bin"},
                    {"member": "tiny_weights/LICENSE", "path": "LICENSE"},
                ],
            }
        ],
    }
    return CatalogEntry.model_validate(fields | changes)


def repository(folder: Path, *entries: CatalogEntry, transfer: TransferConfig | None = None) -> Repository:
    return Repository(folder / "models", catalog=Catalog(entries or (entry(),)), transfer=transfer)
