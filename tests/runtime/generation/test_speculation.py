"""Guessed tokens change how fast an answer comes, never what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import InvalidInputError
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.request import MEDIA_TOKEN, PromptTokens, TextDelta
from runtime.generation.sampling import SamplingConfig
from runtime.generation.speculation import DraftModel, Pace, PromptLookup, Speculation
from tests.runtime import tiny_llama

Start = Callable[..., AbstractContextManager[TextEngine]]

REPEATED = [5, 17, 250, 8, 5, 17, 250, 8, 5, 17, 250, 8, 5, 17]


class CountingDecoder(Decoder):
    """Counts steps that generate."""

    steps = 0

    def verify(self, *arguments: Any, **named: Any) -> Any:
        self.steps += 1
        return super().verify(*arguments, **named)

    def decode(self, *arguments: Any, **named: Any) -> Any:
        self.steps += 1
        return super().decode(*arguments, **named)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("tiny")
    manifest = tiny_llama.serve(folder)
    other = tmp_path_factory.mktemp("other")
    tiny_llama.serve(other, seed=1)

    @contextmanager
    def engine(speculative_tokens: int, draft: str | None = None):  # type: ignore[no-untyped-def]
        decoder = CountingDecoder(folder, manifest, slots=2, threads=1)
        drafts = {"same": folder, "other": other}
        guesser = None if draft is None else Decoder(drafts[draft], manifest, slots=1, threads=1)
        config = EngineConfig(speculative_tokens=speculative_tokens, speculate=True, prefix_cache_nbytes=0)
        made = TextEngine(decoder, lambda token: f"<{token}>".encode(), config, guesser)
        made.open()
        yield made
        made.close()

    return engine


async def answer(engine: TextEngine, ids: Sequence[int], sampling: SamplingConfig) -> list[TextDelta]:
    prompt = PromptTokens(np.array(ids, np.int32), np.zeros((0, tiny_llama.HIDDEN), np.float32))
    return [piece async for piece in engine.submit(prompt, sampling)]


def tokens(pieces: Sequence[TextDelta]) -> list[int]:
    return [token for piece in pieces for token in piece.token_ids]


SETTINGS = [
    SamplingConfig(max_tokens=40),
    SamplingConfig(max_tokens=1),
    SamplingConfig(max_tokens=40, temperature=3.0, seed=4),
    SamplingConfig(max_tokens=40, temperature=2.0, top_p=0.8, seed=2**63),
    SamplingConfig(max_tokens=40, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.5),
    SamplingConfig(max_tokens=40, top_logprobs=3),
    SamplingConfig(max_tokens=200),  # as far as the context goes
]


@pytest.mark.parametrize("draft", [None, "same", "other"])
@pytest.mark.parametrize("sampling", SETTINGS, ids=lambda one: f"{one.max_tokens}-{one.temperature}")
async def test_an_answer_with_guesses_is_the_answer_without(
    start: Start, sampling: SamplingConfig, draft: str | None
) -> None:
    for ids in ([5, 17, 250], REPEATED, [9]):
        with start(0) as plain, start(5, draft) as guessing:
            right, found = await answer(plain, ids, sampling), await answer(guessing, ids, sampling)
        assert tokens(found) == tokens(right)
        assert found[-1].finish_reason == right[-1].finish_reason
        told, wanted = ([one for piece in pieces for one in piece.logprobs] for pieces in (found, right))
        assert [one.token for one in told] == [one.token for one in wanted]
        np.testing.assert_allclose([one.logprob for one in told], [one.logprob for one in wanted], atol=1e-3)


async def test_a_stop_string_within_the_guessed_tokens_ends_the_answer_there(start: Start) -> None:
    with start(0) as plain:
        right = tokens(await answer(plain, REPEATED, SamplingConfig(max_tokens=20)))
    stop = f"<{right[3]}>"
    with start(5, "same") as guessing:
        pieces = await answer(guessing, REPEATED, SamplingConfig(max_tokens=20, stop=(stop,)))
    assert "".join(piece.text for piece in pieces) == "".join(f"<{token}>" for token in right[:3])
    assert pieces[-1].finish_reason == "stop"


async def test_a_draft_that_is_always_right_saves_nearly_every_step(start: Start) -> None:
    with start(4, "same") as engine:
        made = tokens(await answer(engine, [5, 17, 250], SamplingConfig(max_tokens=41)))
        decoder = engine._decoder
    assert isinstance(decoder, CountingDecoder)
    # The first token comes from the prompt; a step then gives the guess of two, later four, and one more.
    assert decoder.steps <= 1 + -(-len(made) // 5)


async def test_a_prediction_that_comes_true_saves_steps_and_is_counted(start: Start, tmp_path: Path) -> None:
    decoder = CountingDecoder(tmp_path, tiny_llama.serve(tmp_path), slots=2, threads=1)
    engine = TextEngine(decoder, lambda token: b"", EngineConfig(prefix_cache_nbytes=0))
    engine.open()
    right = tiny_llama.greedy(tiny_llama.weights(), [5, 17, 250], 40)
    prompt = PromptTokens(np.array([5, 17, 250], np.int32), np.zeros((0, tiny_llama.HIDDEN), np.float32))
    prediction = np.array([*right[:20], 7, 7, 7, *right[20:]], np.int32)
    generation = engine.submit(prompt, SamplingConfig(max_tokens=40), prediction=prediction)
    assert [token async for piece in generation for token in piece.token_ids] == right
    assert decoder.steps < len(right) / 2
    assert generation.accepted_tokens + decoder.steps == len(right) - 1
    assert generation.rejected_tokens > 0
    engine.close()


async def test_answers_side_by_side_are_decoded_together_without_guesses(start: Start) -> None:
    with start(0) as plain:
        right = [tokens(await answer(plain, ids, SamplingConfig(max_tokens=30))) for ids in (REPEATED, [9, 8])]
    with start(5, "same") as engine:
        found = await asyncio.gather(
            *(answer(engine, ids, SamplingConfig(max_tokens=30)) for ids in (REPEATED, [9, 8]))
        )
    assert [tokens(pieces) for pieces in found] == right


def test_a_draft_model_with_other_tokens_is_refused(tmp_path: Path) -> None:
    manifest = tiny_llama.serve(tmp_path)
    decoder = Decoder(tmp_path, manifest, slots=1)
    other = Decoder(tmp_path, manifest.model_copy(update={"dims": manifest.dims | {"vocabulary": 299}}), slots=1)
    with pytest.raises(InvalidInputError, match="the draft model has 299 tokens, the model 300"):
        TextEngine(decoder, lambda token: b"", draft=other)


def test_a_draft_follows_a_sequence_that_takes_another_turn(tmp_path: Path) -> None:
    draft = DraftModel(Decoder(tmp_path, tiny_llama.serve(tmp_path), slots=1, threads=1))
    made = tiny_llama.weights()
    for ids in ([5, 17, 250], [5, 17, 250, 3], [5, 17, 9, 9, 9], [1]):
        assert list(draft.propose(ids, 3)) == tiny_llama.greedy(made, ids, 3)


def test_a_draft_guesses_nothing_where_an_embedding_stands(tmp_path: Path) -> None:
    draft = DraftModel(Decoder(tmp_path, tiny_llama.serve(tmp_path), slots=1, threads=1))
    assert list(draft.propose([5, MEDIA_TOKEN, 7], 3)) == []


@pytest.mark.parametrize(
    ("seen", "most", "proposed"),
    [
        ([1, 2, 3, 4, 9, 1, 2], 3, [3, 4, 9]),
        ([1, 2, 3, 4, 9, 1, 2], 1, [3]),
        ([1, 2, 3, 1, 2, 4, 1, 2], 2, [4, 1]),  # the latest
        ([7, 1, 2, 3, 0, 5, 1, 2, 4, 0, 7, 1, 2], 2, [3, 0]),  # but a longer match first
        ([1, 2, 3, 4, 5], 3, []),
        ([1, 1, 1], 3, [1]),
        ([1, 2, MEDIA_TOKEN, 4, 1, 2], 3, []),  # an embedding cannot be guessed
        ([1, 2, 3, MEDIA_TOKEN, 1, 2], 3, [3]),
        ([1], 3, []),
    ],
)
def test_what_came_after_the_last_tokens_before_is_proposed(seen: list[int], most: int, proposed: list[int]) -> None:
    assert list(PromptLookup().propose(seen, most)) == proposed


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 59))
def test_a_lookup_that_read_along_proposes_what_a_fresh_one_does(ids: list[int], most: int, first: int) -> None:
    along = PromptLookup()
    for end in range(min(first, len(ids)), len(ids) + 1):
        proposed = along.propose(ids[:end], most)
        assert proposed == PromptLookup().propose(ids[:end], most)
        assert len(proposed) <= most


def test_the_pace_doubles_while_guesses_come_true_and_rests_longer_after_each_miss() -> None:
    pace = Pace(7)
    lengths = []
    for accepted in (2, 4, 7, 3):
        lengths.append(pace.length())
        pace.learn(lengths[-1], accepted)
    assert lengths == [2, 4, 7, 7]
    assert pace.length() == 3
    rests = []
    for _ in range(7):
        pace.learn(1, 0)
        rests.append(0)
        while not pace.length():
            rests[-1] += 1
    assert rests == [1, 2, 4, 8, 16, 32, 32]
    pace.learn(1, 1)
    assert pace.length() == 2


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9), st.integers(0, 9))
def test_a_guess_is_never_longer_than_what_is_of_use(hits: list[bool], most: int, room: int) -> None:
    speculation = Speculation(PromptLookup(), np.array([1, 2] * 20, np.int32), most)
    guesses = 0
    answered: list[int] = []
    for hit in hits:
        proposed = speculation.propose(answered, room)
        assert len(proposed) <= min(most, room)
        if proposed:
            guesses += 1
            speculation.learn(len(proposed), len(proposed) if hit else 0)
        answered.append(1 if len(answered) % 2 == 0 else 2)
    # A text that repeats itself is always guessed at, unless guesses rest after one that did not come true.
    assert guesses == 0 or (most and room)
    assert guesses >= 1 or not (hits and room)
