"""Write the served form of a decoder: its graph and its embedding table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runtime.graphs.decoder.graph import decoder
from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.decoder.weights import ReadTensor, StoreMatrix, as_float


def write_decoder(folder: Path, shape: DecoderShape, weights: ReadTensor, store: StoreMatrix) -> None:
    """Write `model.onnx` with `model.data`, and `embeddings.npy` float16 or float32 (token, hidden).

    Args:
        folder: Where to.
        shape: Sizes and choices.
        weights: The weights.
        store: How matrices are kept; where they are kept exactly, the table is too.
    """
    decoder(shape, weights, store).save(folder / "model.onnx")
    table = weights("embeddings")
    if shape.embedding_scale != 1:
        table = table * np.float32(shape.embedding_scale)
    half = table.astype(np.float16)
    exact = store is not as_float or bool((half == table).all())
    np.save(folder / "embeddings.npy", half if exact else table)
