"""The chat model gives the same answer to the same request, whoever else is there and whatever was computed before.

Rounding makes this more than a matter of course: activations are rounded to 8 bits, so a sum that is added up in
another order, however little it differs, can end in another token. What is compared here is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from bus.contracts import ModelManifest
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.grammar import GrammarCompiler
from runtime.generation.limits import EngineConfig
from runtime.generation.request import PromptTokens
from runtime.generation.sampler import Constraint
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Repository

pytestmark = pytest.mark.models

NO_MEDIA = np.zeros((0, 576), np.float32)
QUESTIONS = ["Tell me a joke.", "Why is the sky blue?", "Name a river in Africa and say where it ends.", "Hi!"]
SETTINGS = [SamplingConfig(max_tokens=24), SamplingConfig(max_tokens=24, temperature=1.0, top_p=0.95, seed=6)]


@pytest.fixture(scope="module")
def manifest() -> ModelManifest:
    return Repository().resolve("chat")


@pytest.fixture(scope="module")
def tokenizer(manifest: ModelManifest) -> ChatTokenizer:
    return ChatTokenizer(Repository().folder(manifest))


@contextmanager
def running(
    manifest: ModelManifest, tokenizer: ChatTokenizer, config: EngineConfig, *, slots: int = 4, threads: int = 0
) -> Iterator[TextEngine]:
    decoder = Decoder(Repository().folder(manifest), manifest, slots=slots, context=256, threads=threads)
    engine = TextEngine(decoder, tokenizer.token_bytes, config)
    engine.open()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prompts(tokenizer: ChatTokenizer) -> list[PromptTokens]:
    chats = [tokenizer.chat([{"role": "user", "content": question}]) for question in QUESTIONS]
    return [PromptTokens(tokenizer.encode(text, markup=True), NO_MEDIA) for text in chats]


async def tokens(
    engine: TextEngine, prompt: PromptTokens, sampling: SamplingConfig, constraint: Constraint | None = None
) -> list[int]:
    generation = engine.submit(prompt, sampling, constraint=constraint)
    return [token async for piece in generation for token in piece.token_ids]


async def in_turn(engine: TextEngine, prompts: list[PromptTokens]) -> list[list[int]]:
    return [await tokens(engine, prompt, sampling) for prompt in prompts for sampling in SETTINGS]


async def test_an_answer_is_the_same_alone_in_company_after_others_and_in_pieces(
    manifest: ModelManifest, tokenizer: ChatTokenizer, prompts: list[PromptTokens]
) -> None:
    with running(manifest, tokenizer, EngineConfig(prefix_cache_nbytes=0)) as engine:
        alone = await in_turn(engine, prompts)
        asked = [(prompt, sampling) for prompt in prompts for sampling in SETTINGS]
        together = await asyncio.gather(*(tokens(engine, *one) for one in asked))
    with running(manifest, tokenizer, EngineConfig()) as engine:
        first, again = [await in_turn(engine, prompts) for _ in range(2)]
    with running(manifest, tokenizer, EngineConfig(prefill_chunk=9, prefix_cache_nbytes=0)) as engine:
        pieces = await in_turn(engine, prompts)
    assert together == alone
    assert first == alone
    assert again == alone
    assert pieces == alone


async def test_an_answer_is_the_same_whatever_an_engine_is_set_to(
    manifest: ModelManifest, tokenizer: ChatTokenizer, prompts: list[PromptTokens]
) -> None:
    with running(manifest, tokenizer, EngineConfig()) as engine:
        right = await in_turn(engine, prompts[:2])
    with running(manifest, tokenizer, EngineConfig(), slots=1, threads=1) as engine:
        assert await in_turn(engine, prompts[:2]) == right
    with running(manifest, tokenizer, EngineConfig(prefill_chunk=3), slots=2) as engine:
        assert await in_turn(engine, prompts[:2]) == right


async def test_an_answer_of_a_form_is_the_same_alone_and_beside_others(
    manifest: ModelManifest, tokenizer: ChatTokenizer, prompts: list[PromptTokens]
) -> None:
    asked = [SamplingConfig(max_tokens=16, temperature=1.0, seed=seed) for seed in range(3)]
    with running(manifest, tokenizer, EngineConfig()) as engine:
        grammars = GrammarCompiler(tokenizer, manifest.dims["vocabulary"], manifest.parameters["end_tokens"])

        def formed() -> list[Constraint]:
            return list(grammars.compile("json_object", "", len(asked)))

        alone = [
            await tokens(engine, prompts[2], sampling, constraint)
            for sampling, constraint in zip(asked, formed(), strict=True)
        ]
        together = await asyncio.gather(
            *(tokens(engine, prompts[2], *one) for one in zip(asked, formed(), strict=True)),
            tokens(engine, prompts[3], SETTINGS[1]),
        )
    assert together[: len(asked)] == alone
