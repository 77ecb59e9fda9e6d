"""The engine on a tiny model with random weights; what is right comes from plain NumPy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from bus.errors import (
    CancelledRequestError,
    ContextLengthError,
    DeadlineExceededError,
    EngineError,
    InvalidInputError,
    OverloadedError,
)
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig, use_repeatable
from runtime.generation.request import Generation, PromptTokens
from runtime.generation.sampling import SamplingConfig
from tests.runtime import tiny_llama

SLOTS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama.serve(folder)
    return folder


@pytest.fixture
def engine(folder: Path) -> Iterator[TextEngine]:
    decoder = Decoder(folder, tiny_llama.serve(folder), slots=SLOTS, threads=1)
    engine = TextEngine(decoder, letter, EngineConfig(max_waiting=4, prefill_chunk=4))
    engine.open()
    yield engine
    engine.close()


def letter(token: int) -> bytes:
    return f"<{token}>".encode()


def prompt(*ids: int) -> PromptTokens:
    return PromptTokens(np.array(ids, np.int32), np.zeros((0, tiny_llama.HIDDEN), np.float32))


async def collect(generation: Generation) -> tuple[str, list[int], str | None]:
    text, tokens, reason = "", list[int](), None
    async for piece in generation:
        text += piece.text
        tokens += piece.token_ids
        reason = piece.finish_reason
    return text, tokens, reason


def expected(ids: list[int], count: int) -> list[int]:
    return tiny_llama.greedy(tiny_llama.weights(), ids, count)


async def test_an_answer_is_what_the_equations_choose(engine: TextEngine) -> None:
    text, tokens, reason = await collect(engine.submit(prompt(5, 17, 250), SamplingConfig(max_tokens=10)))
    right = expected([5, 17, 250], 10)
    assert tokens == right
    assert text == "".join(f"<{token}>" for token in right if token != tiny_llama.END)
    assert reason == ("stop" if right[-1] == tiny_llama.END else "length")


async def test_more_prompts_than_slots_of_all_lengths_each_get_their_own_answer(engine: TextEngine) -> None:
    random = np.random.default_rng(9)
    prompts = [random.integers(0, 299, size).tolist() for size in (1, 13, 4, 5, 9, 2, 21)]
    counts = [3, 9, 1, 12, 6, 15, 4]
    running = [
        asyncio.create_task(collect(engine.submit(prompt(*ids), SamplingConfig(max_tokens=count))))
        for ids, count in zip(prompts, counts, strict=True)
    ]
    answers = await asyncio.gather(*running)
    assert [tokens for _, tokens, _ in answers] == [
        expected(ids, count) for ids, count in zip(prompts, counts, strict=True)
    ]


async def test_the_same_seed_gives_the_same_text_alone_and_in_company(engine: TextEngine) -> None:
    def start(seed: int) -> Generation:
        sampling = SamplingConfig(max_tokens=12, temperature=5.0, top_p=0.9, seed=seed)
        return engine.submit(prompt(4, 5, 6), sampling)

    alone = await collect(start(1))
    together = await asyncio.gather(*(collect(start(seed)) for seed in (2, 1, 3)))
    assert together[1] == alone
    assert together[0] != alone


async def test_each_token_comes_with_its_log_probability_when_asked_for(engine: TextEngine) -> None:
    generation = engine.submit(prompt(5, 17, 250), SamplingConfig(max_tokens=4, top_logprobs=2))
    told = [logprob async for piece in generation for logprob in piece.logprobs]
    made, ids = tiny_llama.weights(), [5, 17, 250]
    for one in told:
        right = log_softmax(tiny_llama.logits(made, made["token_embd"][ids])[-1])
        assert one.token == right.argmax()
        assert one.logprob == pytest.approx(right.max(), abs=1e-3)
        assert [token for token, _ in one.top] == np.argsort(-right)[:2].tolist()
        ids.append(one.token)
    assert len(told) == 4


async def test_a_bias_for_a_token_that_the_model_lacks_is_refused(engine: TextEngine) -> None:
    with pytest.raises(InvalidInputError, match=r"logit_bias names tokens \[300\]; the model has 300"):
        engine.submit(prompt(1), SamplingConfig(logit_bias=((299, 1.0), (300, 1.0))))


async def test_a_penalty_keeps_an_answer_from_repeating_itself(engine: TextEngine) -> None:
    _, tokens, _ = await collect(
        engine.submit(prompt(5, 17), SamplingConfig(max_tokens=30, presence_penalty=1000.0, logit_bias=((299, -1e4),)))
    )
    assert len(set(tokens)) == 30


async def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(engine: TextEngine) -> None:
    right = expected([5, 17, 250], 6)
    stop = f"{right[2]}><{right[3]}"
    text, tokens, reason = await collect(engine.submit(prompt(5, 17, 250), SamplingConfig(max_tokens=20, stop=(stop,))))
    assert text == f"<{right[0]}><{right[1]}><"
    assert tokens == right[:4]
    assert reason == "stop"


async def test_the_context_ends_an_answer_that_has_no_other_end(engine: TextEngine) -> None:
    ids = list(range(tiny_llama.CONTEXT - 3))
    _, tokens, reason = await collect(engine.submit(prompt(*ids), SamplingConfig(max_tokens=100)))
    assert tokens == expected(ids, 4)
    assert reason == "length"


async def test_a_prompt_past_the_context_is_refused_with_both_numbers(engine: TextEngine) -> None:
    with pytest.raises(ContextLengthError, match=r"64 tokens.*is 64"):
        engine.submit(prompt(*range(tiny_llama.CONTEXT)), SamplingConfig())


async def test_a_cancelled_answer_ends_and_frees_its_slot(engine: TextEngine) -> None:
    generations = [engine.submit(prompt(1, 2), SamplingConfig(max_tokens=60)) for _ in range(SLOTS)]
    generations[1].cancel()
    with pytest.raises(CancelledRequestError):
        await collect(generations[1])
    others = await asyncio.gather(collect(generations[0]), collect(generations[2]))
    assert [tokens for _, tokens, _ in others] == [expected([1, 2], 60)] * 2


async def test_whoever_leaves_the_iteration_cancels(engine: TextEngine) -> None:
    generation = engine.submit(prompt(1, 2), SamplingConfig(max_tokens=60))
    pieces = aiter(generation)
    await anext(pieces)
    await pieces.aclose()
    assert generation.abandoned


async def test_a_request_that_says_it_is_cancelled_ends(engine: TextEngine) -> None:
    generation = engine.submit(prompt(1, 2), SamplingConfig(max_tokens=60), is_cancelled=lambda: True)
    with pytest.raises(CancelledRequestError):
        await collect(generation)


async def test_a_deadline_that_has_passed_ends_it(engine: TextEngine) -> None:
    generation = engine.submit(prompt(1, 2), SamplingConfig(max_tokens=60), deadline_s=time.time() - 1)
    with pytest.raises(DeadlineExceededError):
        await collect(generation)


async def test_requests_before_the_engine_opens_wait_for_it_up_to_its_limit(folder: Path) -> None:
    decoder = Decoder(folder, tiny_llama.serve(folder), slots=1, threads=1)
    engine = TextEngine(decoder, letter, EngineConfig(max_waiting=2))
    admitted = [engine.submit(prompt(3), SamplingConfig(max_tokens=2)) for _ in range(3)]
    with pytest.raises(OverloadedError, match="0 answers run in 1 slots and 3 more wait"):
        engine.submit(prompt(3), SamplingConfig(max_tokens=2))
    engine.open()
    assert [(await collect(one))[1] for one in admitted] == [expected([3], 2)] * 3
    engine.close()


async def test_overload_names_what_is_free(folder: Path) -> None:
    decoder = Decoder(folder, tiny_llama.serve(folder), slots=1, threads=1)
    engine = TextEngine(decoder, letter, EngineConfig(max_waiting=1))
    engine.open()
    running = engine.submit(prompt(3), SamplingConfig(max_tokens=60))
    await anext(aiter(running))
    waiting = engine.submit(prompt(3), SamplingConfig(max_tokens=1))
    with pytest.raises(OverloadedError, match=r"1 answers run .*of 2 places 0 are free") as caught:
        engine.submit(prompt(3), SamplingConfig(max_tokens=1))
    assert caught.value.retryable
    assert caught.value.details == {"free": 0, "waiting": 1}
    running.cancel()
    assert (await collect(waiting))[1] == expected([3], 1)
    engine.close()


async def test_a_closed_engine_ends_what_runs_and_refuses_more(engine: TextEngine) -> None:
    generation = engine.submit(prompt(1), SamplingConfig(max_tokens=60))
    engine.close()
    with pytest.raises(CancelledRequestError):
        await collect(generation)
    with pytest.raises(EngineError, match="closed"):
        engine.submit(prompt(1), SamplingConfig())
    engine.close()


async def test_embeddings_of_another_width_are_refused(engine: TextEngine) -> None:
    with pytest.raises(InvalidInputError, match="7 dimensions"):
        engine.submit(PromptTokens(np.array([-1], np.int32), np.zeros((1, 7), np.float32)), SamplingConfig())


@pytest.mark.parametrize(
    ("ids", "media"),
    [
        (np.zeros(0, np.int32), np.zeros((0, 4), np.float32)),
        (np.zeros(3, np.int64), np.zeros((0, 4), np.float32)),
        (np.array([-1, -1], np.int32), np.zeros((1, 4), np.float32)),
        (np.array([-1], np.int32), np.zeros((1, 4), np.float64)),
    ],
    ids=["empty", "wrong integers", "too few embeddings", "wrong floats"],
)
def test_a_prompt_that_does_not_fit_together_is_refused(ids: np.ndarray, media: np.ndarray) -> None:
    with pytest.raises(InvalidInputError):
        PromptTokens(ids, media)


async def test_a_cancel_check_that_fails_ends_its_own_request_and_no_other(engine: TextEngine) -> None:
    def fails() -> bool:
        raise RuntimeError("nobody knows")

    beside = engine.submit(prompt(5, 17, 250), SamplingConfig(max_tokens=10))
    broken = engine.submit(prompt(3), SamplingConfig(max_tokens=10), is_cancelled=fails)
    with pytest.raises(EngineError, match="nobody knows"):
        await collect(broken)
    assert (await collect(beside))[1] == expected([5, 17, 250], 10)


def test_every_setting_that_an_engine_cannot_work_with_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"max_waiting is -1.*prefill_chunk is 2; it is at least 3"):
        EngineConfig(max_waiting=-1, prefill_chunk=2)


@pytest.mark.parametrize(("repeatable", "rows"), [(True, 2), (False, 1), (None, 2)])
async def test_a_lone_row_in_4_bits_brings_a_spare_one_along_unless_a_deployer_does_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, repeatable: bool | None, rows: int
) -> None:
    manifest = tiny_llama.serve(folder).model_copy(update={"quantisation": "q4"})
    decoder, sizes = Decoder(folder, manifest, slots=SLOTS, threads=1), set[int]()
    whole = decoder.decode

    def counted(tokens: np.ndarray, lengths: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        sizes.add(len(tokens))
        return whole(tokens, lengths, shifts)

    monkeypatch.setattr(decoder, "decode", counted)
    use_repeatable(repeatable is not False)
    try:
        engine = TextEngine(decoder, letter, EngineConfig())
    finally:
        use_repeatable(True)
    engine.open()
    _, tokens, _ = await collect(engine.submit(prompt(5, 17, 250), SamplingConfig(max_tokens=6)))
    engine.close()
    assert sizes == {rows}
    assert tokens == expected([5, 17, 250], 6)
