"""A model that gives no numbers is an error of the engine, and no answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bus.errors import EngineError
from runtime.export.decoder import write_decoder
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.graphs.decoder.weights import as_float
from runtime.graphs.families import llama
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.weights.gguf import GgufFile
from tests.runtime import tiny_llama

PROMPT = PromptTokens(np.array([5, 17, 9], np.int32), np.zeros((0, tiny_llama.HIDDEN), np.float32))


@pytest.mark.parametrize("part", ["head", "blocks.1.qkv", "norm"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_weights_that_are_no_numbers_end_the_request_with_an_error(
    part: str, temperature: float, tmp_path: Path
) -> None:
    manifest = tiny_llama.serve(tmp_path)
    checkpoint = GgufCheckpoint(GgufFile(tmp_path / "model.gguf"))
    shape = llama.FAMILY.shape(checkpoint.config)
    weights = DecoderWeights(checkpoint, llama.FAMILY, shape)

    def read(name: str) -> NDArray[np.float32]:
        weight = weights(name)
        return np.full_like(weight, np.nan) if name == part else weight

    write_decoder(tmp_path, shape, read, as_float)
    engine = TextEngine(Decoder(tmp_path, manifest, slots=2, threads=1), lambda token: b"x")
    engine.open()
    try:
        for _ in range(2):  # the engine is there for the next one, too
            generation = engine.submit(PROMPT, SamplingConfig(max_tokens=4, temperature=temperature, seed=1))
            with pytest.raises(EngineError, match="no numbers"):
                await anext(aiter(generation))
    finally:
        engine.close()
