"""Soft image tokens for a language model, as a composition: class probabilities times embeddings of class names.

It stands in for a trained projector: the vision encoder says how likely each class is, and the language model's own
token embeddings of the likeliest names, mixed by these probabilities, are what it is shown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.repository import Repository

COMPOSITION = "label-bridge"

_NAMES = 3


class LabelBridge:
    """Mixes the token embeddings of class names.

    Args:
        tokens: float16 `(label, token, hidden)`, zero-padded.
        lengths: int8 `(label,)`, tokens of each name, at least 1.
        ref: `id@version` of the bridge.
    """

    def __init__(self, tokens: NDArray[np.float16], lengths: NDArray[np.int8], ref: str) -> None:
        self._tokens, self._lengths = tokens, lengths
        self.ref = ref

    @classmethod
    def load(cls, repository: Repository, name: str = "label-bridge") -> LabelBridge:
        """Open the installed bridge.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged.
        """
        manifest = repository.resolve(name)
        try:
            tokens = np.load(repository.file(manifest, "tokens.npy"), mmap_mode="r")
            lengths = np.load(repository.file(manifest, "lengths.npy"))
        except ValueError as error:
            raise ModelCorruptError(f"a table of {manifest.ref} cannot be read: {error}") from error
        return cls(tokens, lengths, manifest.ref)

    def tokens(self, probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
        """The picture as 1 to 4 soft tokens, float32 `(token, hidden)`.

        As many as the likeliest name has; a shorter name lends its last token to the places behind it.

        Args:
            probabilities: float32 `(label,)`.
        """
        likeliest = top(probabilities, _NAMES)
        weights = probabilities[likeliest] / probabilities[likeliest].sum()
        count = int(self._lengths[likeliest[0]])
        places = np.minimum(np.arange(count)[None, :], self._lengths[likeliest, None] - 1)
        names = self._tokens[likeliest[:, None], places].astype(np.float32)
        mixed: NDArray[np.float32] = np.einsum("l,lth->th", weights, names).astype(np.float32)
        return mixed


def top(probabilities: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Indices of the likeliest classes, likeliest first."""
    return np.argsort(-probabilities, kind="stable")[:count]
