"""The image encoder: what a picture shows, and its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError
from runtime.engines.cores import threads_for
from runtime.engines.identity import content_digest
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository
from runtime.residency.shared import SharedModels


@dataclass(frozen=True, slots=True)
class Seen:
    """What the encoder makes of pictures, or of one, then without the first axis.

    Attributes:
        probabilities: float32 `(image, class)`.
        features: float32 `(image, 1280)`.
    """

    probabilities: NDArray[np.float32]
    features: NDArray[np.float32]


class ImageClassifier:
    """Classifies batches of preprocessed pictures.

    Args:
        session: The model.
        labels: Name of each class.
        ref: `id@version` of the model.
    """

    def __init__(self, session: OnnxSession, labels: tuple[str, ...], ref: str) -> None:
        self._session = session
        self.labels = labels
        self.ref = ref

    @classmethod
    def load(cls, repository: Repository, name: str, *, threads: int = 0) -> ImageClassifier:
        """Open an installed model; all who hold the same one share it.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged.
        """
        manifest = repository.resolve(name)
        key = (repository.folder(manifest), content_digest(manifest), threads_for(threads))
        return _shared.get(key, lambda: cls._open(repository, manifest, threads))

    @classmethod
    def _open(cls, repository: Repository, manifest: ModelManifest, threads: int) -> ImageClassifier:
        labels = repository.file(manifest, "labels.txt").read_text(encoding="utf-8").split("\n")
        session = OnnxSession(repository.file(manifest, "model.onnx"), threads=threads, spin=False)
        classes = session.outputs["logits"].shape[-1] if "logits" in session.outputs else None
        if classes != len(labels):
            raise ModelCorruptError(f"{manifest.ref} has {len(labels)} labels; its model tells {classes} classes apart")
        return cls(session, tuple(labels), manifest.ref)

    def look(self, pixels: NDArray[np.float32]) -> Seen:
        """Encode pictures.

        Args:
            pixels: float32 `(image, 3, 224, 224)`, `(x − 127) / 128`.

        Raises:
            InvalidInputError: Another dtype or shape.
        """
        logits, features = self._session.run({"pixel_values": pixels}, ["logits", "embedding"])
        return Seen(_softmax(logits), features)


_shared: SharedModels[ImageClassifier] = SharedModels()


def _softmax(logits: NDArray[Any]) -> NDArray[np.float32]:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: NDArray[np.float32] = weights / weights.sum(axis=-1, keepdims=True)
    return result
