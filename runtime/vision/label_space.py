"""Pictures among texts, as a composition: class probabilities times sentence embeddings of "a photo of a <class>".

It stands in for an encoder that was trained on pictures and texts together. A picture's vector says what the classifier
sees, in the words of the sentence encoder, so that it can be compared with that encoder's vectors of texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.repository import Repository

COMPOSITION = "label-space"

Floats = NDArray[np.float32]


class LabelSpace:
    """Mixes the sentence embeddings of class names.

    Args:
        vectors: float32 `(label, dim)`, each of length 1.
        ref: `id@version` of the space.
        texts: `id@version` of the sentence encoder whose vectors it can be compared with.
    """

    def __init__(self, vectors: Floats, ref: str, texts: str) -> None:
        self._vectors = vectors
        self.ref, self.texts = ref, texts
        self.dim = vectors.shape[1]

    @classmethod
    def load(cls, repository: Repository, name: str = "label-space") -> LabelSpace:
        """Open the installed space.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged, or of another shape than its manifest says.
        """
        manifest = repository.resolve(name)
        try:
            vectors = np.load(repository.file(manifest, "vectors.npy"), mmap_mode="r")
        except ValueError as error:
            raise ModelCorruptError(f"the table of {manifest.ref} cannot be read: {error}") from error
        told = (manifest.dims["labels"], manifest.dims["hidden"])
        if vectors.shape != told:
            raise ModelCorruptError(f"the table of {manifest.ref} is {vectors.shape}; its manifest says {told}")
        return cls(vectors, manifest.ref, str(manifest.parameters["texts"]))

    def vectors(self, probabilities: Floats) -> Floats:
        """Vectors of length 1, float32 `(image, dim)`.

        Args:
            probabilities: float32 `(image, label)`.
        """
        mixed: Floats = probabilities @ self._vectors
        mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
        return mixed
