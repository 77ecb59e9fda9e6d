"""How likely a given answer is, against plain NumPy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.forced import ForcedAnswer
from runtime.generation.sampling import SamplingConfig
from tests.runtime import tiny_llama
from tests.runtime.generation.test_engine import letter, prompt

PROMPT = [5, 17, 250]
ANSWERS = ([9, 3, 77, 12, 12, 200], [1], [250, 17, 5, 4])


@pytest.mark.parametrize("predicted", [True, False], ids=["checked at once", "token by token"])
async def test_the_log_probabilities_of_a_given_answer_are_those_of_the_equations(
    predicted: bool, tmp_path: Path
) -> None:
    decoder = Decoder(tmp_path, tiny_llama.serve(tmp_path), slots=3, threads=1)
    engine = TextEngine(decoder, letter)
    engine.open()

    async def told(answer: list[int]) -> list[float]:
        tokens = np.array(answer, np.int32)
        generation = engine.submit(
            prompt(*PROMPT),
            SamplingConfig(max_tokens=len(answer), top_logprobs=0),
            constraint=ForcedAnswer(tokens, engine.vocabulary),
            prediction=tokens if predicted else None,
        )
        pieces = [piece async for piece in generation]
        assert [token for piece in pieces for token in piece.token_ids] == answer
        return [one.logprob for piece in pieces for one in piece.logprobs]

    try:
        found = await asyncio.gather(*map(told, ANSWERS))
    finally:
        engine.close()
    for answer, logprobs in zip(ANSWERS, found, strict=True):
        made = tiny_llama.weights()
        logits = tiny_llama.logits(made, made["token_embd"][PROMPT + answer])
        right = log_softmax(logits.astype(np.float64), axis=1)[len(PROMPT) - 1 : -1]
        np.testing.assert_allclose(logprobs, right[np.arange(len(answer)), answer], atol=1e-4)
