"""Positions of three axes against the text models of Qwen2-VL and Qwen3-VL in transformers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLTextModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

from bus.errors import ContextLengthError, ModelCorruptError
from runtime.export.checkpoint import open_decoder
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.request import MEDIA_TOKEN, PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.graphs.decoder.shape import Block, Rotary
from tests.runtime import reference
from tests.runtime.graphs.families.cases import VOCABULARY
from tests.runtime.graphs.families.served import serve

Positions = NDArray[np.int32]
GRID = (2, 3, 4)
"""Time, height and width of the film in the middle of a prompt."""


@dataclass(frozen=True)
class Pair:
    model: PreTrainedModel
    decoder: Decoder

    def logits(self, embeddings: NDArray[np.float32], positions: Positions) -> NDArray[np.float32]:
        with torch.inference_mode():
            stream = self.model(
                inputs_embeds=torch.from_numpy(embeddings)[None],
                position_ids=torch.from_numpy(positions.astype(np.int64))[:, None],
                use_cache=False,
            ).last_hidden_state[0]
            found: NDArray[np.float32] = (stream @ self.table().T).numpy()
        return found

    def table(self) -> torch.Tensor:
        return self.model.get_parameter("embed_tokens.weight").detach()


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 200,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


@pytest.fixture(scope="module", params=["qwen2-vl", "qwen3-vl"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1000.0}
    model: PreTrainedModel
    if request.param == "qwen2-vl":
        rope |= {"mrope_section": [2, 3, 3]}
        model = Qwen2VLTextModel(Qwen2VLTextConfig(**SIZES, rope_parameters=rope))
    else:
        rope |= {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
        model = Qwen3VLTextModel(Qwen3VLTextConfig(**SIZES, rope_parameters=rope))
    reference.randomise(model)
    model.train(False)
    folder = tmp_path_factory.mktemp("model")
    shape, weights = open_decoder(reference.save(model, folder), context=160)
    return Pair(model, serve(folder, shape, weights, slots=2))


def prompt(before: int, after: int) -> tuple[NDArray[np.float32], Positions]:
    """Text, a film, text: embeddings of each token, and positions by Qwen2-VL's rule."""
    film = np.stack([axis.reshape(-1) for axis in np.indices(GRID)]) + before
    start = before + max(GRID)
    places = [np.tile(np.arange(before), (3, 1)), film, np.tile(np.arange(start, start + after), (3, 1))]
    positions = np.concatenate(places, axis=1).astype(np.int32)
    random = np.random.default_rng(before)
    return random.standard_normal((positions.shape[1], 64)).astype(np.float32), positions


@pytest.mark.parametrize("pieces", [(0, 40), (0, 5, 17, 40)], ids=["at once", "in pieces"])
def test_a_prompt_with_a_film_gives_the_logits_of_the_reference(pieces: tuple[int, ...], pair: Pair) -> None:
    embeddings, positions = prompt(9, 7)
    assert len(embeddings) == pieces[-1]
    right = pair.logits(embeddings, positions)
    for start, stop in pairwise(pieces):
        found = pair.decoder.prefill(1, embeddings[start:stop], start, positions[:, start:stop])
        np.testing.assert_allclose(found, right[stop - 1], atol=1e-3)
    text = pair.logits(embeddings, np.tile(np.arange(40, dtype=np.int32), (3, 1)))
    assert np.abs(text - right).max() > 0.1  # the positions are not those of a text


def test_rows_with_films_in_different_places_decode_together(pair: Pair) -> None:
    rows = [prompt(9, 7), prompt(3, 1)]
    for row, (embeddings, positions) in enumerate(rows):
        pair.decoder.prefill(row, embeddings, 0, positions)
    table = pair.table().numpy()
    for token in (17, 4, 250, 251):
        lengths = np.array([len(embeddings) for embeddings, _ in rows])
        following = np.array([int(positions.max()) + 1 for _, positions in rows], np.int32)
        found = pair.decoder.decode(np.full(2, token, np.int32), lengths, following - lengths)
        rows = [
            (np.concatenate([embeddings, table[[token]]]), np.concatenate([positions, np.full((3, 1), place)], axis=1))
            for (embeddings, positions), place in zip(rows, following, strict=True)
        ]
        for logits, (embeddings, positions) in zip(found, rows, strict=True):
            np.testing.assert_allclose(logits, pair.logits(embeddings, positions)[-1], atol=1e-3)


def test_a_text_alone_needs_no_positions(pair: Pair) -> None:
    ids = np.array([5, 17, 250, 3, 9], np.int32)
    embeddings = pair.decoder.embed(ids, np.zeros((0, 64), np.float32))
    right = pair.logits(embeddings, np.tile(np.arange(5, dtype=np.int32), (3, 1)))
    np.testing.assert_allclose(pair.decoder.verify(0, ids, 0), right, atol=1e-3)


@pytest.mark.parametrize("axes", [(0, 1, 2), (0,) * 9])
def test_sections_that_do_not_fill_a_head_are_refused(axes: tuple[int, ...], pair: Pair, tmp_path: Path) -> None:
    shape, _ = open_decoder(reference.save(pair.model, tmp_path))
    with pytest.raises(ModelCorruptError, match="sections"):
        replace(shape, blocks=(Block(Rotary((1.0,) * 8, axes=axes)),))


def media_prompt(before: int, after: int) -> PromptTokens:
    """Random tokens around a film of random embeddings."""
    embeddings, positions = prompt(before, after)
    ids = np.random.default_rng(7).integers(3, VOCABULARY, len(embeddings)).astype(np.int32)
    ids[before : len(ids) - after] = MEDIA_TOKEN
    return PromptTokens(ids, embeddings[ids == MEDIA_TOKEN], positions=positions)


def greedy(pair: Pair, asked: PromptTokens, count: int) -> list[int]:
    """What the reference goes on with, computed anew for each token."""
    assert asked.positions is not None
    table = pair.table().numpy()
    embeddings, positions = table[np.maximum(asked.ids, 0)], asked.positions
    embeddings[asked.ids == MEDIA_TOKEN] = asked.embeddings
    answer: list[int] = []
    while len(answer) < count:
        answer.append(int(pair.logits(embeddings, positions)[-1].argmax()))
        embeddings = np.concatenate([embeddings, table[answer[-1:]]])
        positions = np.concatenate([positions, np.full((3, 1), positions.max() + 1, np.int32)], axis=1)
    return answer


async def tokens_of(engine: TextEngine, asked: PromptTokens, count: int, **more: Any) -> tuple[list[int], int]:
    generation = engine.submit(asked, SamplingConfig(max_tokens=count), **more)
    return [token async for piece in generation for token in piece.token_ids], generation.cached_tokens


async def test_an_engine_goes_on_behind_films_as_the_reference_does(pair: Pair) -> None:
    asked = [media_prompt(9, 7), media_prompt(3, 1), media_prompt(20, 30)]
    right = [greedy(pair, one, 12) for one in asked]
    engine = TextEngine(pair.decoder, lambda token: b"", EngineConfig(prefill_chunk=5))
    engine.open()
    try:
        found = await asyncio.gather(*(tokens_of(engine, one, 12) for one in asked))
        assert [tokens for tokens, _ in found] == right
        again, cached = await tokens_of(engine, asked[0], 12)
        assert (again, cached) == (right[0], 32)
        guessed, _ = await tokens_of(engine, asked[0], 12, prediction=np.array(right[0], np.int32))
        assert guessed == right[0]
        assert asked[0].positions is not None
        elsewhere = replace(asked[0], positions=asked[0].positions[:, ::-1][[0, 2, 1], ::-1].copy())
        assert (await tokens_of(engine, elsewhere, 1))[1] == 0  # the same embeddings in another grid are another prompt
    finally:
        engine.close()


async def test_positions_beyond_what_the_model_knows_are_refused_and_end_an_answer(pair: Pair) -> None:
    engine = TextEngine(pair.decoder, lambda token: b"")
    engine.open()
    asked = media_prompt(9, 7)
    assert asked.positions is not None
    try:
        far = replace(asked, positions=asked.positions * np.array([[40], [1], [1]], np.int32))
        with pytest.raises(ContextLengthError, match=r"reach position 760 .* knows 200"):
            engine.submit(far, SamplingConfig())
        near = replace(asked, positions=asked.positions + np.int32(170))
        tokens, _ = await tokens_of(engine, near, 100)
        assert 170 + 20 + len(tokens) - 1 == 200  # the last one is not fed back
    finally:
        engine.close()
