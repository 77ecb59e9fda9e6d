"""A model of a repository, small enough to calculate by hand: y = x · w."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bus.contracts import ModelFile, ModelManifest
from runtime.graphs.ops import Graph
from runtime.repository.download import sha256_of


def weight(width: int = 64, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((width, width)).astype(np.float32)


def install(root: Path, *, version: str = "1", seed: int = 0, width: int = 64, **parameters: object) -> Path:
    """Write `tiny@<version>` into a models folder; returns its model file."""
    folder = root / "tiny" / version
    folder.mkdir(parents=True)
    graph = Graph("tiny")
    x = graph.input("x", np.float32, ("batch", width))
    graph.output(graph.matmul(x, "w", weight(width, seed).T), "y", np.float32, ("batch", width))
    graph.save(folder / "model.onnx")
    describe(folder, version=version, **parameters)
    return folder / "model.onnx"


def describe(folder: Path, *, version: str = "1", **parameters: object) -> None:
    """Write the manifest of what is in a folder."""
    files = [path for path in sorted(folder.iterdir()) if path.name != "manifest.json"]
    manifest = ModelManifest(
        id="tiny",
        version=version,
        family="test",
        modalities_in=("text",),
        modalities_out=("text",),
        files=tuple(ModelFile(path=path.name, sha256=sha256_of(path), nbytes=path.stat().st_size) for path in files),
        source=(),
        license="MIT",
        parameters=parameters,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json(), encoding="utf-8")
