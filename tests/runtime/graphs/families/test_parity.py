"""Every family against transformers, on weights that transformers made and saved."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import PreTrainedModel

from runtime.export.checkpoint import open_decoder
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.request import Generation, PromptTokens
from runtime.generation.sampling import SamplingConfig
from tests.runtime import reference
from tests.runtime.graphs.families.cases import CASES, VOCABULARY, Case
from tests.runtime.graphs.families.served import serve

LENGTHS = (3, 21, 50)
ANSWER = 64
NO_MEDIA = np.zeros((0, 1), np.float32)


@dataclass(frozen=True)
class Pair:
    """One model twice: as the reference runs it, and as it is served here."""

    model: PreTrainedModel
    decoder: Decoder
    prompts: list[list[int]]

    def embed(self, ids: list[int]) -> NDArray[np.float32]:
        return self.decoder.embed(np.array(ids, np.int32), NO_MEDIA)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    model, folder = case.model(), tmp_path_factory.mktemp("model")
    shape, weights = open_decoder(reference.save(model, folder))
    random = np.random.default_rng(7)
    prompts = [random.integers(3, VOCABULARY, length).tolist() for length in LENGTHS]
    return Pair(model, serve(folder, shape, weights, slots=3), prompts)


def test_logits_are_those_of_the_reference(pair: Pair) -> None:
    for row, prompt in enumerate(pair.prompts):
        found = pair.decoder.verify(row, np.array(prompt, np.int32), 0)
        np.testing.assert_allclose(found, reference.logits(pair.model, prompt), atol=1e-3)


def test_a_prompt_in_pieces_gives_the_same_logits(pair: Pair) -> None:
    prompt = pair.prompts[2]
    right = reference.logits(pair.model, prompt)
    embeddings = pair.embed(prompt)
    for start, stop in ((0, 7), (7, 8), (8, 33), (33, 50)):
        found = pair.decoder.prefill(0, embeddings[start:stop], start)
        np.testing.assert_allclose(found, right[stop - 1], atol=1e-3)


def test_rows_of_different_lengths_decode_together_as_they_would_alone(pair: Pair) -> None:
    rows = [list(prompt) for prompt in pair.prompts]
    for row, prompt in enumerate(rows):
        pair.decoder.prefill(row, pair.embed(prompt), 0)
    for token in range(3, 40):
        found = pair.decoder.decode(np.full(len(rows), token, np.int32), np.array([len(ids) for ids in rows]))
        for ids in rows:
            ids.append(token)
        last = found.copy()
    for ids, logits in zip(rows, last, strict=True):
        np.testing.assert_allclose(logits, reference.logits(pair.model, ids)[-1], atol=1e-3)


async def test_64_greedy_tokens_are_those_of_the_reference_from_a_cold_and_from_a_known_prefix(pair: Pair) -> None:
    right = [reference.greedy(pair.model, prompt, ANSWER) for prompt in pair.prompts]
    assert all(len(set(answer)) > 8 for answer in right)  # an answer that repeats itself would prove little
    engine = TextEngine(pair.decoder, lambda token: b"", EngineConfig(prefill_chunk=16))
    engine.open()
    try:
        cold = [engine.submit(_prompt(ids), SamplingConfig(max_tokens=ANSWER, temperature=0)) for ids in pair.prompts]
        assert await asyncio.gather(*map(_tokens, cold)) == right
        known = engine.submit(_prompt(pair.prompts[2]), SamplingConfig(max_tokens=ANSWER, temperature=0))
        assert await _tokens(known) == right[2]
        assert known.cached_tokens == 48
    finally:
        engine.close()


def _prompt(ids: list[int]) -> PromptTokens:
    return PromptTokens(np.array(ids, np.int32), NO_MEDIA)


async def _tokens(generation: Generation) -> list[int]:
    return [token async for piece in generation for token in piece.token_ids]
