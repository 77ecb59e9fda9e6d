"""`text.embed`. Right values: transformers in float32 on the same weights, mean pooling."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from bus.contracts import TensorRef
from bus.errors import DeadlineExceededError, InvalidInputError
from functions.environment import FunctionEnvironment
from functions.registry import registry

pytestmark = pytest.mark.models

registry.load("functions.stages")

TEXTS = ["A photo of a cat", "a kitten sits on the sofa, looking at you", "quarterly tax report"]
FIRST_VALUES = [0.0329630, 0.0911846, 0.0277171, 0.0236292, -0.0545577, -0.0013174]
COSINES = [[1.0, 0.4220535, 0.0821843], [0.4220535, 1.0, 0.0508320], [0.0821843, 0.0508320, 1.0]]


async def embed(environment: FunctionEnvironment, texts: list[str]) -> tuple[np.ndarray, int]:
    outputs = await environment.run("text.embed", {"texts": texts})
    return await environment.tensors.get(TensorRef.model_validate(outputs["vectors"])), outputs["tokens"]


async def test_vectors_are_those_of_the_reference(environment: FunctionEnvironment) -> None:
    vectors, tokens = await embed(environment, TEXTS)
    np.testing.assert_allclose(vectors[0, :6], FIRST_VALUES, atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, COSINES, atol=1e-5)
    assert tokens == 7 + 12 + 5


async def test_many_texts_of_all_lengths_get_the_vectors_they_get_alone(environment: FunctionEnvironment) -> None:
    texts = [" ".join(["word"] * (place * 7 % 60)) + f" {place}" for place in range(40)]
    together, _ = await embed(environment, texts)
    for place in (0, 13, 39):
        alone, _ = await embed(environment, [texts[place]])
        np.testing.assert_allclose(together[place], alone[0], atol=1e-5)


async def test_any_script_and_any_length_has_a_vector_of_length_one(environment: FunctionEnvironment) -> None:
    vectors, _ = await embed(environment, ["", "世界 мир العالم 😀", "a" * 100_000, "word " * 20_000, " \n\t\x00"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_requests_that_come_together_get_the_vectors_they_get_alone(environment: FunctionEnvironment) -> None:
    texts = [f"Sentence number {place} is about {'rivers ' * (place % 9)}" for place in range(32)]
    together = await asyncio.gather(*(embed(environment, [text]) for text in texts))
    alone, _ = await embed(environment, texts[:1])
    np.testing.assert_allclose(together[0][0], alone, atol=1e-5)
    everything, _ = await embed(environment, texts)
    np.testing.assert_allclose(np.concatenate([vectors for vectors, _ in together]), everything, atol=1e-5)


async def test_dimensions_that_the_model_was_not_trained_for_are_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="384 dimensions, not 128"):
        await environment.run("text.embed", {"texts": ["a"], "dimensions": 128})
    outputs = await environment.run("text.embed", {"texts": ["a"], "dimensions": 384})
    assert outputs["vectors"]["shape"] == (1, 384)


async def test_a_request_past_its_deadline_is_not_run(environment: FunctionEnvironment) -> None:
    with pytest.raises(DeadlineExceededError):
        await environment.run("text.embed", {"texts": ["a"]}, deadline_s=time.time() - 1)


async def test_no_texts_are_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="texts"):
        await environment.run("text.embed", {"texts": []})
