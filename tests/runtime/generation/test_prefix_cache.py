"""What is computed once is not computed again, and changes no answer. Right answers: plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.kv import KvPool
from runtime.generation.limits import EngineConfig
from runtime.generation.prefix_cache import BLOCK_TOKENS, PrefixCache, block_keys
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from tests.runtime import tiny_llama

NO_MEDIA = np.zeros((0, tiny_llama.HIDDEN), np.float32)
RANDOM = np.random.default_rng(3).integers(0, 299, 60).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama.serve(folder)
    return folder


@pytest.fixture
def engine(folder: Path) -> Iterator[TextEngine]:
    decoder = Decoder(folder, tiny_llama.serve(folder), slots=3, threads=1)
    engine = TextEngine(decoder, lambda token: b"x", EngineConfig(prefill_chunk=7))
    engine.open()
    yield engine
    engine.close()


def text(*ids: int, scope: str = "") -> PromptTokens:
    return PromptTokens(np.array(ids, np.int32), NO_MEDIA, scope)


async def answered(engine: TextEngine, prompt: PromptTokens, count: int = 6) -> tuple[list[int], int]:
    """The tokens of the answer, and how many of the prompt's were known."""
    generation = engine.submit(prompt, SamplingConfig(max_tokens=count))
    tokens = [token async for piece in generation for token in piece.token_ids]
    return tokens, generation.cached_tokens


def expected(ids: list[int], count: int = 6) -> list[int]:
    return tiny_llama.greedy(tiny_llama.weights(), ids, count)


async def test_a_shared_beginning_is_computed_once_and_each_answer_is_its_own(engine: TextEngine) -> None:
    shared = RANDOM[:40]
    assert await answered(engine, text(*shared, 1, 2, 3)) == (expected([*shared, 1, 2, 3]), 0)
    assert await answered(engine, text(*shared, 7, 8)) == (expected([*shared, 7, 8]), 32)
    assert await answered(engine, text(*shared[:20])) == (expected(shared[:20]), 16)


async def test_the_same_prompt_again_computes_its_last_token_at_least(engine: TextEngine) -> None:
    ids = RANDOM[:32]
    assert await answered(engine, text(*ids)) == (expected(ids), 0)
    assert await answered(engine, text(*ids)) == (expected(ids), 16)


async def test_the_next_turn_begins_with_the_last_answer(engine: TextEngine) -> None:
    ids = RANDOM[:10]
    said, _ = await answered(engine, text(*ids), 24)
    turn = [*ids, *said, 9, 9]
    assert len(said) == 24
    assert await answered(engine, text(*turn)) == (expected(turn), 32)


async def test_one_picture_is_shared_and_another_is_not(engine: TextEngine) -> None:
    pictures = np.random.default_rng(1).standard_normal((2, 20, tiny_llama.HIDDEN)).astype(np.float32)
    ids = np.array([*[-1] * 20, 4, 5], np.int32)

    def right(picture: np.ndarray) -> int:
        made = tiny_llama.weights()
        return int(tiny_llama.logits(made, np.concatenate([picture, made["token_embd"][[4, 5]]]))[-1].argmax())

    for picture, known in ((0, 0), (1, 0), (0, 16)):
        prompt = PromptTokens(ids, pictures[picture])
        assert await answered(engine, prompt, 1) == ([right(pictures[picture])], known)


async def test_nothing_is_shared_between_scopes(engine: TextEngine) -> None:
    for scope, known in (("a", 0), ("b", 0), ("a", 16)):
        assert (await answered(engine, text(*RANDOM[:20], scope=scope)))[1] == known


async def test_without_memory_nothing_is_kept(folder: Path) -> None:
    decoder = Decoder(folder, tiny_llama.serve(folder), slots=1, threads=1)
    engine = TextEngine(decoder, lambda token: b"x", EngineConfig(prefix_cache_nbytes=0))
    engine.open()
    for _ in range(2):
        assert await answered(engine, text(*RANDOM[:40])) == (expected(RANDOM[:40]), 0)
    engine.close()


def pool() -> KvPool:
    return KvPool(layers=1, kv_heads=2, head_dim=4, slots=2, capacity=64)


def fill(pool: KvPool, row: int, seed: int) -> None:
    for part in pool.rows(row, row + 1):
        part[:] = np.random.default_rng(seed).standard_normal(part.shape)


def test_a_row_comes_back_as_it_was() -> None:
    rows = pool()
    fill(rows, 0, 1)
    cache = PrefixCache(rows, 10**6)
    keys = block_keys(text(*range(40)))
    cache.store(keys, 0)
    assert cache.restore(keys, 1) == 2 * BLOCK_TOKENS
    for part in rows.rows(0, 2):
        np.testing.assert_array_equal(part[0, :, :32], part[1, :, :32])


def test_the_budget_holds_and_what_was_unused_for_longest_goes_from_its_end() -> None:
    rows = pool()
    fill(rows, 0, 1)
    block_nbytes = rows.read(0, 0, BLOCK_TOKENS).nbytes
    cache = PrefixCache(rows, 4 * block_nbytes)
    old, other, new = (block_keys(text(*ids)) for ids in (range(48), range(100, 116), range(200, 232)))
    cache.store(old, 0)
    cache.store(other, 0)
    cache.restore(old, 1)
    cache.store(new, 0)
    assert cache.nbytes == 4 * block_nbytes
    assert cache.restore(other, 1) == 0
    assert cache.restore(old, 1) == 32
    assert cache.restore(new, 1) == 32


def test_a_block_is_known_by_all_that_came_before_it() -> None:
    one, other = block_keys(text(*[1] * 48)), block_keys(text(2, *[1] * 47))
    assert len({*one, *other}) == 6
    assert block_keys(text(*[1] * 20), [1] * 28) == one
