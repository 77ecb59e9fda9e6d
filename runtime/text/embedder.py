"""Sentences as vectors whose angles say how near their meanings are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError, ModelCorruptError
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository
from runtime.text.grouping import group_by_length
from runtime.text.vocabulary import read_tokenizer

Floats = NDArray[np.float32]
Tokens = NDArray[np.int32]

_CLASSES = ((64, 64), (128, 16))
_SHRINK_TOKENS = 1024

_LONG = 8
"""Texts of one batch that are longer than every class."""


class TextEmbedder:
    """Embeds texts, those of similar length together; safe from several threads.

    Args:
        session: The model.
        tokenizer: `tokenizer.json` of the model.
        manifest: Its manifest: `dims.hidden`, the parameters `max_tokens` and, where the model was trained for
            shorter vectors, `dimensions`, the lengths that it may be cut to.

    Raises:
        ModelCorruptError: The tokenizer cannot be read, or the model has other dimensions than its manifest says.
    """

    def __init__(self, session: OnnxSession, tokenizer: Path, manifest: ModelManifest) -> None:
        self._session = session
        self.ref = manifest.ref
        self.dim = manifest.dims["hidden"]
        self.dimensions = (*sorted(map(int, manifest.parameters.get("dimensions", ()))), self.dim)
        self._normalised = bool(manifest.parameters.get("normalise", True))
        _check(session, manifest)
        self._tokenizer = read_tokenizer(tokenizer)
        self._tokenizer.enable_truncation(int(manifest.parameters["max_tokens"]))
        self._tokenizer.no_padding()

    @classmethod
    def load(cls, repository: Repository, name: str, *, threads: int = 0) -> TextEmbedder:
        """Open an installed model.

        Raises:
            ModelNotFoundError: Not installed.
            ModelCorruptError: Damaged.
        """
        manifest = repository.resolve(name)
        # No spinning: beside other work it takes half as much processor time again, and gives nothing.
        session = OnnxSession(repository.file(manifest, "model.onnx"), threads=threads, spin=False, quick=True)
        return cls(session, repository.file(manifest, "tokenizer.json"), manifest)

    def settle(self) -> None:
        """Wait until the model is at its full speed: it opens quickly and gets faster after the first run."""
        self._session.settle()

    def check_dimensions(self, dimensions: int | None) -> int:
        """The length that vectors get; None: all that the model has.

        Raises:
            InvalidInputError: A length that the model was not trained for; names those that it was.
        """
        if dimensions is None:
            return self.dim
        if dimensions not in self.dimensions:
            allowed = ", ".join(map(str, self.dimensions))
            raise InvalidInputError(
                f"{self.ref} has vectors of {allowed} dimensions, not {dimensions}", param="dimensions"
            )
        return dimensions

    def shorten(self, vectors: Floats, dimensions: int | None) -> Floats:
        """The first dimensions of each vector, of length 1 again where the model's vectors are.

        Source: Kusupati et al., Matryoshka Representation Learning (2022).

        Args:
            vectors: float32 `(text, dim)`.
            dimensions: As for `check_dimensions`.

        Raises:
            InvalidInputError: A length that the model was not trained for.
        """
        count = self.check_dimensions(dimensions)
        if count == vectors.shape[1]:
            return vectors
        short: Floats = vectors[:, :count].copy()
        return short / np.linalg.norm(short, axis=1, keepdims=True) if self._normalised else short

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Token ids of each text, int32 `(token,)`; what is longer than the model reads is cut."""
        return [np.asarray(encoding.ids, np.int32) for encoding in self._tokenizer.encode_batch(list(texts))]

    def bucket(self, tokens: Tokens) -> Hashable:
        """Class of a text's length: texts of one class may share a batch without waiting long for each other."""
        return next((longest for longest, _ in _CLASSES if len(tokens) <= longest), None)

    def limit(self, bucket: Hashable) -> int:
        """The most texts of a class in one batch."""
        return dict(_CLASSES).get(bucket, _LONG) if isinstance(bucket, int) else _LONG

    def run(self, texts: Sequence[Tokens]) -> list[Floats]:
        """A vector, float32 `(dim,)`, for each tokenised text."""
        vectors = np.empty((len(texts), self.dim), np.float32)
        for group in group_by_length([len(one) for one in texts]):
            vectors[group] = self._run_padded([texts[place] for place in group])
        return list(vectors)

    def embed(self, texts: Sequence[str], *, cancelled: Callable[[], bool] = lambda: False) -> tuple[Floats, Tokens]:
        """Vectors of length 1, float32 `(text, dim)`, and tokens read of each text, int32 `(text,)`.

        Args:
            texts: In any script; long ones are cut.
            cancelled: Asked before every run; when it says yes, the vectors that are missing stay zero.
        """
        ids = self.tokenize(texts)
        lengths = np.array([len(one) for one in ids], np.int32)
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for group in group_by_length(lengths.tolist()):
            if cancelled():
                break
            vectors[group] = self._run_padded([ids[place] for place in group])
        return vectors, lengths

    def _run_padded(self, texts: Sequence[Tokens]) -> NDArray[Any]:
        padded = np.zeros((len(texts), max(map(len, texts))), np.int32)
        mask = np.zeros_like(padded)
        for row, tokens in enumerate(texts):
            padded[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        # Long texts take a hundred times what a question takes: that is not kept for the next time.
        large = padded.size > _SHRINK_TOKENS
        inputs = {"input_ids": padded, "attention_mask": mask}
        (vectors,) = self._session.run(inputs, ["embedding"], shrink=large)
        return vectors


def _check(session: OnnxSession, manifest: ModelManifest) -> None:
    port = session.outputs.get("embedding")
    if port is None or port.shape[-1] != manifest.dims["hidden"]:
        raise ModelCorruptError(
            f"the manifest of {manifest.ref} says {manifest.dims['hidden']} dimensions; its model gives {port}",
            model=manifest.ref,
        )
