"""Dozens of requests of every kind at once: each is answered as if it were alone, and every row is free afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from bus.errors import CancelledRequestError, DeadlineExceededError, OmnibusError
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from tests.runtime import tiny_llama

Request = tuple[list[int], SamplingConfig, str]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("tiny")
    return Decoder(folder, tiny_llama.serve(folder), slots=4, threads=1)


def open_engine(decoder: Decoder, chunk: int, speculate: bool) -> TextEngine:
    config = EngineConfig(max_waiting=200, prefill_chunk=chunk, prefix_cache_nbytes=200_000, speculate=speculate)
    engine = TextEngine(decoder, lambda token: bytes([32 + token % 90]), config)
    engine.open()
    return engine


def requests(seed: int, count: int) -> list[Request]:
    """Prompts that share beginnings, settings of all kinds, and a fate: run, cancel, deadline, predict."""
    random = np.random.default_rng(seed)
    shared = random.integers(0, 299, 40).tolist()
    made: list[Request] = []
    for _ in range(count):
        ids = shared[: random.integers(0, 40)] + random.integers(0, 299, random.integers(1, 12)).tolist()
        sampling = SamplingConfig(
            max_tokens=int(random.integers(1, 20)),
            temperature=float(random.choice([0.0, 1.0, 4.0])),
            top_k=int(random.choice([0, 5])),
            top_p=float(random.choice([1.0, 0.8])),
            repetition_penalty=float(random.choice([1.0, 1.3])),
            logit_bias=((7, 2.0),) if random.random() < 0.3 else (),
            top_logprobs=2 if random.random() < 0.3 else None,
            seed=int(random.integers(0, 2**40)),
            stop=(chr(32 + int(random.integers(0, 90))),) if random.random() < 0.3 else (),
        )
        made.append((ids, sampling, str(random.choice(["run", "run", "run", "cancel", "deadline", "predict"]))))
    return made


async def answer(engine: TextEngine, request: Request) -> tuple[str, list[int], str | None]:
    """Text, tokens and how it ended; of a request with another fate, up to there."""
    ids, sampling, fate = request
    prompt = PromptTokens(np.array(ids, np.int32), np.zeros((0, tiny_llama.HIDDEN), np.float32))
    prediction = np.array(ids[::-1] + ids, np.int32) if fate == "predict" else None
    deadline_s = time.time() if fate == "deadline" else None
    generation = engine.submit(prompt, sampling, prediction=prediction, deadline_s=deadline_s)
    text, tokens, reason = "", list[int](), None
    try:
        async for piece in generation:
            text, tokens, reason = text + piece.text, [*tokens, *piece.token_ids], piece.finish_reason
            if fate == "cancel" and len(tokens) > 2:
                generation.cancel()
    except (CancelledRequestError, DeadlineExceededError):
        if fate not in ("cancel", "deadline"):
            raise
    return text, tokens, reason


@pytest.mark.parametrize(("seed", "chunk", "speculate"), [(1, 512, False), (2, 3, False), (3, 7, True)])
async def test_each_answer_in_a_storm_is_the_answer_alone(
    decoder: Decoder, seed: int, chunk: int, speculate: bool
) -> None:
    asked = requests(seed, 60)
    engine = open_engine(decoder, chunk, speculate)
    stormed = await asyncio.gather(*(answer(engine, request) for request in asked))
    while len(engine._scheduler):  # the last piece is delivered before its row is given back
        await asyncio.sleep(0)
    engine.close()
    plain = open_engine(decoder, 512, False)
    for request, found in zip(asked, stormed, strict=True):
        ids, sampling, fate = request
        right = await answer(plain, (ids, sampling, "run"))
        if fate in ("cancel", "deadline") and found[2] is None:
            assert _begins(right[1], found[1])
            assert right[0].startswith(found[0])
        else:
            assert found == right
    plain.close()


def _begins(whole: Sequence[int], part: Sequence[int]) -> bool:
    return list(whole[: len(part)]) == list(part)


async def test_a_step_that_fails_ends_its_own_answers_and_the_engine_goes_on(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(decoder, 512, False)
    whole = decoder.decode
    left = iter([None] * 5)

    def failing(*arguments: object, **named: object) -> object:
        if next(left, 0) == 0:
            monkeypatch.setattr(decoder, "decode", whole)
            raise MemoryError("no memory for this step")
        return whole(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(decoder, "decode", failing)
    request: Request = ([5, 17, 250], SamplingConfig(max_tokens=20), "run")
    with pytest.raises(OmnibusError, match="no memory for this step"):
        await answer(engine, request)
    _, tokens, _ = await answer(engine, request)
    assert tokens == tiny_llama.greedy(tiny_llama.weights(), [5, 17, 250], 20)
    engine.close()
