"""Build the label space: a sentence embedding for each of the classifier's class names."""

from __future__ import annotations

import numpy as np

from bus.errors import ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.repository.manifest_file import read_manifest
from runtime.repository.recipe import BuildJob, Built
from runtime.text.embedder import TextEmbedder

_TEXTS = "all-minilm-l6-v2"


def build(job: BuildJob) -> Built:
    """Write `vectors.npy` float32 (label, dim), each of length 1, and `labels.txt`.

    Raises:
        ModelCorruptError: The sentence encoder has no manifest.
    """
    folder = job.needs[_TEXTS]
    manifest = read_manifest(folder)
    if manifest is None:
        raise ModelCorruptError(f"{folder} has no manifest; run `omnibus models verify {_TEXTS} --repair`")
    embedder = TextEmbedder(OnnxSession(folder / "model.onnx"), folder / "tokenizer.json", manifest)
    text = (job.needs["efficientnet-lite0"] / "labels.txt").read_text(encoding="utf-8")
    labels = text.split("\n")
    vectors, _ = embedder.embed([job.parameters["template"].format(label) for label in labels])
    np.save(job.out / "vectors.npy", vectors)
    (job.out / "labels.txt").write_text(text, encoding="utf-8")
    return Built(dims={"hidden": embedder.dim, "labels": len(labels)}, parameters={"texts": manifest.ref})
