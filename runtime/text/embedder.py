"""Sentences as vectors whose angles say how near their meanings are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bus.errors import ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository

_BATCH = 32


class TextEmbedder:
    """Embeds texts in batches of similar length.

    Args:
        session: The model.
        tokenizer: `tokenizer.json` of the model.
        ref: `id@version` of the model.
        dim: Length of a vector.
        max_tokens: Longer texts are cut, as the model was trained.

    Raises:
        ModelCorruptError: The tokenizer cannot be read.
    """

    def __init__(self, session: OnnxSession, tokenizer: Path, ref: str, *, dim: int, max_tokens: int) -> None:
        self._session = session
        self.ref = ref
        self.dim = dim
        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the tokenizers library raises bare exceptions
            raise ModelCorruptError(f"the tokenizer of {ref} cannot be read: {error}") from error
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.no_padding()

    @classmethod
    def load(cls, repository: Repository, name: str, *, threads: int = 0) -> TextEmbedder:
        """Open an installed model.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged.
        """
        manifest = repository.resolve(name)
        session = OnnxSession(repository.file(manifest, "model.onnx"), threads=threads, quick=True)
        return cls(
            session,
            repository.file(manifest, "tokenizer.json"),
            manifest.ref,
            dim=manifest.dims["hidden"],
            max_tokens=int(manifest.parameters["max_tokens"]),
        )

    def settle(self) -> None:
        """Wait until the model is at its full speed: it opens quickly and gets faster after the first run."""
        self._session.settle()

    def embed(
        self, texts: Sequence[str], *, cancelled: Callable[[], bool] = lambda: False
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Vectors of length 1, float32 `(text, dim)`, and tokens read of each text, int32 `(text,)`.

        Args:
            texts: In any script; long ones are cut.
            cancelled: Asked before every batch; when it says yes, the vectors that are missing stay zero.
        """
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        lengths = np.array([len(one) for one in ids], np.int32)
        vectors = np.zeros((len(texts), self.dim), np.float32)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), _BATCH):
            if cancelled():
                break
            chosen = order[start : start + _BATCH]
            padded = np.zeros((len(chosen), int(lengths[chosen].max())), np.int32)
            mask = np.zeros_like(padded)
            for row, place in enumerate(chosen):
                padded[row, : lengths[place]] = ids[place]
                mask[row, : lengths[place]] = 1
            (vectors[chosen],) = self._session.run({"input_ids": padded, "attention_mask": mask})
        return vectors, lengths
