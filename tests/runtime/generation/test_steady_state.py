"""A decode step of the chat model works in memory that it has: nothing of a vocabulary's size is taken anew."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from runtime.generation.decoder import Decoder
from runtime.generation.sampler import Sampler, choose_tokens
from runtime.generation.sampling import SamplingConfig
from runtime.repository import Repository

pytestmark = pytest.mark.models

ROWS, START = 4, 8


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    repository = Repository()
    manifest = repository.resolve("chat")
    return Decoder(repository.folder(manifest), manifest, slots=ROWS, context=64, threads=2)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(),
        SamplingConfig(temperature=1.0, seed=3),
        SamplingConfig(temperature=0.8, top_p=0.9, top_k=50, min_p=0.01, seed=3),
        SamplingConfig(repetition_penalty=1.1, presence_penalty=0.2, logit_bias=((5, -1.0),)),
    ],
    ids=["greedy", "temperature", "limited", "penalised"],
)
def test_steps_after_the_first_take_less_memory_than_one_row_of_logits(
    decoder: Decoder, sampling: SamplingConfig
) -> None:
    samplers = [Sampler(sampling) for _ in range(ROWS)]
    tokens, lengths = np.full(ROWS, 504, np.int32), np.full(ROWS, START, np.int64)

    def step() -> None:
        choices = choose_tokens(samplers, decoder.decode(tokens, lengths))
        tokens[:] = [choice.token for choice in choices if choice is not None]
        lengths[:] += 1

    for _ in range(3):
        step()
    tracemalloc.start()
    kept = tracemalloc.get_traced_memory()[0]
    for _ in range(8):
        step()
    peak = tracemalloc.get_traced_memory()[1] - kept
    tracemalloc.stop()
    assert peak < decoder.vocabulary * 4
