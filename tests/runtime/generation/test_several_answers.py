"""Several answers to one prompt: the prompt is computed once, and each answer is what it would be alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bus.errors import InvalidInputError, OverloadedError
from runtime.generation.decoder import Decoder, Floats
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.sampling import SamplingConfig
from tests.runtime import tiny_llama
from tests.runtime.generation.test_engine import collect, letter, prompt

PROMPT = (5, 17, 250, 3, 9, 41, 77)


class CountingDecoder(Decoder):
    """Counts the prompt tokens that it computes."""

    computed = 0

    def prefill(self, row: int, embeddings: Floats, start: int, positions: np.ndarray | None = None) -> Floats:
        self.computed += len(embeddings)
        return super().prefill(row, embeddings, start, positions)


@pytest.fixture
def decoder(tmp_path: Path) -> CountingDecoder:
    return CountingDecoder(tmp_path, tiny_llama.serve(tmp_path), slots=3, threads=1)


@pytest.fixture
def engine(decoder: CountingDecoder) -> Iterator[TextEngine]:
    engine = TextEngine(decoder, letter, EngineConfig(max_waiting=2, prefill_chunk=3, prefix_cache_nbytes=0))
    engine.open()
    yield engine
    engine.close()


def warm(count: int, tokens: int = 12) -> list[SamplingConfig]:
    return [SamplingConfig(max_tokens=tokens + index, temperature=1.5, seed=index) for index in range(count)]


async def test_the_prompt_is_computed_once_and_each_answer_is_its_own(
    engine: TextEngine, decoder: CountingDecoder
) -> None:
    alone = [await collect(engine.submit(prompt(*PROMPT), sampling)) for sampling in warm(3)]
    before = decoder.computed
    together = await asyncio.gather(*(collect(one) for one in engine.submit_all(prompt(*PROMPT), warm(3))))
    assert decoder.computed - before == len(PROMPT)
    assert together == alone
    assert len({tuple(tokens) for _, tokens, _ in alone}) == 3


async def test_answers_beyond_the_slots_follow_when_others_have_ended(engine: TextEngine) -> None:
    alone = [await collect(engine.submit(prompt(*PROMPT), sampling)) for sampling in warm(5)]
    while len(engine._scheduler):  # the last piece is delivered before its row is given back
        await asyncio.sleep(0)
    together = await asyncio.gather(*(collect(one) for one in engine.submit_all(prompt(*PROMPT), warm(5))))
    assert together == alone


async def test_all_are_admitted_or_none(engine: TextEngine) -> None:
    running = engine.submit_all(prompt(3), [SamplingConfig(max_tokens=60)] * 3)
    await asyncio.gather(*(anext(aiter(one)) for one in running))
    with pytest.raises(OverloadedError, match="of 5 places 2 are free, 3 are asked for"):
        engine.submit_all(prompt(3), warm(3))
    pair = engine.submit_all(prompt(3), warm(2))
    for one in running:
        one.cancel()
    assert all(reason for _, _, reason in await asyncio.gather(*map(collect, pair)))
    with pytest.raises(InvalidInputError, match="6 answers are asked for at once; 5 have a place"):
        engine.submit_all(prompt(3), warm(6))


async def test_the_first_one_may_leave_while_the_prompt_is_computed(engine: TextEngine) -> None:
    alone = await collect(engine.submit(prompt(*PROMPT), warm(2)[1]))
    first, second = engine.submit_all(prompt(*PROMPT), warm(2))
    first.cancel()
    assert await collect(second) == alone
