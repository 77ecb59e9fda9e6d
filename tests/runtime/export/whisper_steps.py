"""Whisper's graphs in float32, run step by step over one cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession
from runtime.graphs.whisper import Weights, WhisperDims, decoder_graph, encoder_graph

Floats = NDArray[np.float32]


class WhisperSteps:
    """One clip at a time."""

    def __init__(self, folder: Path, weights: Weights) -> None:
        self._dims = dims = WhisperDims.of(weights)
        encoder_graph(weights, dims).save(folder / "encoder.onnx")
        decoder_graph(weights, dims, quantised=False).save(folder / "decoder.onnx")
        self._encoder, self._decoder = (
            OnnxSession(folder / name, threads=1) for name in ("encoder.onnx", "decoder.onnx")
        )
        self._cross: dict[str, NDArray[Any]] = {}
        self._cache: dict[str, NDArray[Any]] = {}
        self._length = 0

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
