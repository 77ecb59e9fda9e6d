"""The decoder's graph against Llama's forward pass in plain NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.generation.decoder import Decoder
from tests.runtime import tiny_llama

NO_MEDIA = np.zeros((0, tiny_llama.HIDDEN), np.float32)
PROMPTS = [[5, 17, 250, 3, 9], [42], [7, 7, 8, 100, 101, 102, 33, 250, 1]]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("tiny")
    return Decoder(folder, tiny_llama.serve(folder), slots=4, threads=1)


@pytest.fixture(scope="module")
def made() -> dict[str, np.ndarray]:
    return tiny_llama.weights()


def expected(made: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    last: np.ndarray = tiny_llama.logits(made, made["token_embd"][ids])[-1]
    return last


def embed(decoder: Decoder, ids: list[int]) -> np.ndarray:
    return decoder.embed(np.array(ids, np.int32), NO_MEDIA)


@pytest.mark.parametrize("ids", PROMPTS)
def test_a_prompt_gives_the_logits_of_the_equations(
    decoder: Decoder, made: dict[str, np.ndarray], ids: list[int]
) -> None:
    found = decoder.prefill(2, embed(decoder, ids), 0)
    np.testing.assert_allclose(found, expected(made, ids), atol=1e-3)


def test_a_prompt_in_pieces_gives_the_same(decoder: Decoder, made: dict[str, np.ndarray]) -> None:
    ids = PROMPTS[2]
    embeddings = embed(decoder, ids)
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        found = decoder.prefill(1, embeddings[start:stop], start)
    np.testing.assert_allclose(found, expected(made, ids), atol=1e-3)


def test_rows_of_different_lengths_decode_together(decoder: Decoder, made: dict[str, np.ndarray]) -> None:
    rows = [list(ids) for ids in PROMPTS]
    for row, ids in enumerate(rows):
        decoder.prefill(row, embed(decoder, ids), 0)
    random = np.random.default_rng(3)
    for _ in range(12):
        tokens = random.integers(0, tiny_llama.VOCABULARY, len(rows)).astype(np.int32)
        found = decoder.decode(tokens, np.array([len(ids) for ids in rows]))
        for row, ids in enumerate(rows):
            ids.append(int(tokens[row]))
            np.testing.assert_allclose(found[row], expected(made, ids), atol=1e-3)


def test_several_tokens_at_once_give_the_logits_after_each(decoder: Decoder, made: dict[str, np.ndarray]) -> None:
    start, more = PROMPTS[0], np.array([42, 8, 299, 11], np.int32)
    decoder.prefill(2, embed(decoder, start), 0)
    for proposed in (more[::-1].copy(), more):  # what the first call appended is written over by the second
        found = decoder.verify(2, proposed, len(start))
        for place, logits in enumerate(found):
            ids = [*start, *proposed[: place + 1].tolist()]
            np.testing.assert_allclose(logits, expected(made, ids), atol=1e-3)


def test_a_row_that_moves_goes_on_as_it_was(decoder: Decoder, made: dict[str, np.ndarray]) -> None:
    decoder.prefill(3, embed(decoder, PROMPTS[0]), 0)
    decoder.pool.move(3, 0, len(PROMPTS[0]))
    found = decoder.decode(np.array([11], np.int32), np.array([len(PROMPTS[0])]))
    np.testing.assert_allclose(found[0], expected(made, [*PROMPTS[0], 11]), atol=1e-3)


def test_an_embedding_takes_the_place_of_a_token(decoder: Decoder, made: dict[str, np.ndarray]) -> None:
    soft = np.random.default_rng(4).standard_normal((2, tiny_llama.HIDDEN)).astype(np.float32)
    embedded = decoder.embed(np.array([5, -1, 9, -1], np.int32), soft)
    table = made["token_embd"]
    np.testing.assert_array_equal(embedded, np.stack([table[5], soft[0], table[9], soft[1]]))


def test_eight_bit_weights_stay_near_the_equations(tmp_path: Path, made: dict[str, np.ndarray]) -> None:
    decoder = Decoder(tmp_path, tiny_llama.serve(tmp_path, quantized=True), slots=1, threads=1)
    found = decoder.prefill(0, embed(decoder, PROMPTS[2]), 0)
    right = expected(made, PROMPTS[2])
    assert np.abs(found - right).max() < 0.1 * right.std()
