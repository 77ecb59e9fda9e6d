"""Whisper's graphs, run step by step over one cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession
from runtime.graphs.whisper import Weights, WhisperDims, decoder_graph, encoder_graph

Floats = NDArray[np.float32]


class WhisperSteps:
    """One clip at a time.

    Args:
        folder: With `encoder.onnx` and `decoder.onnx`.
        dims: Sizes of the model.
    """

    def __init__(self, folder: Path, dims: WhisperDims) -> None:
        self._dims = dims
        self._encoder, self._decoder = (
            OnnxSession(folder / name, threads=1) for name in ("encoder.onnx", "decoder.onnx")
        )
        self._cross: dict[str, NDArray[Any]] = {}
        self._cache: dict[str, NDArray[Any]] = {}
        self._length = 0

    @classmethod
    def exact(cls, folder: Path, weights: Weights) -> Self:
        """Of weights, in float32."""
        dims = WhisperDims.of(weights)
        encoder_graph(weights, dims).save(folder / "encoder.onnx")
        decoder_graph(weights, dims, quantised=False).save(folder / "decoder.onnx")
        return cls(folder, dims)

    def follow(self, mel: Floats, start: list[int], tokens: list[int]) -> Floats:
        """Logits before each of some tokens, float32 `(token, vocabulary)`."""
        rows = [self.begin(mel, start), *(self.then(token) for token in tokens[:-1])]
        return np.stack(rows)

    def begin(self, mel: Floats, tokens: list[int]) -> Floats:
        """Logits after the first tokens, float32 `(vocabulary,)`."""
        dims, self._length = self._dims, 0
        self._cross = dict(zip(self._encoder.outputs, self._encoder.run({"mel": mel[None]}), strict=True))
        empty = np.zeros((1, dims.heads, dims.context, dims.hidden // dims.heads), np.float32)
        self._cache = {
            f"past.{kind}.{layer}": empty for kind in ("key", "value") for layer in range(dims.decoder_layers)
        }
        return self._step(tokens)

    def then(self, token: int) -> Floats:
        """Logits after one more token."""
        return self._step([token])

    def _step(self, tokens: list[int]) -> Floats:
        start, self._length = self._length, self._length + len(tokens)
        inputs = {
            "tokens": np.array([tokens]),
            "positions": np.arange(start, self._length)[None],
            "last": np.array([self._length - 1], np.int32),
            "total": np.array(self._length, np.int32),
        }
        run = self._decoder.run({**inputs, **self._cache, **self._cross})
        outputs = dict(zip(self._decoder.outputs, run, strict=True))
        self._cache = {name: outputs[name.replace("past", "present")] for name in self._cache}
        logits: Floats = outputs["logits"][0]
        return logits
