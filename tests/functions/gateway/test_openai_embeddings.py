from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import openai as openai_package
import pytest
from blake3 import blake3
from openai import OpenAI


def _expected(text: str) -> Any:
    vector = np.frombuffer(blake3(text.encode()).digest(64), dtype=np.int8).astype(np.float32)
    return vector / np.linalg.norm(vector)


def test_each_text_has_its_vector_in_order(openai: OpenAI) -> None:
    # The official client asks for base64 and decodes it.
    answer = openai.embeddings.create(model="embed", input=["a cat", "two dogs ran"])
    assert [item.index for item in answer.data] == [0, 1]
    for item, text in zip(answer.data, ("a cat", "two dogs ran"), strict=True):
        np.testing.assert_allclose(item.embedding, _expected(text), atol=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 5


def test_numbers_and_base64_say_the_same(openai: OpenAI) -> None:
    numbers = openai.embeddings.create(model="embed", input="a cat", encoding_format="float")
    packed = openai.embeddings.create(model="embed", input="a cat", encoding_format="base64")
    assert isinstance(packed.data[0].embedding, str)
    decoded = np.frombuffer(base64.b64decode(packed.data[0].embedding), dtype="<f4")
    np.testing.assert_array_equal(np.asarray(numbers.data[0].embedding, dtype=np.float32), decoded)


def test_more_vectors_than_fit_a_message_arrive(openai: OpenAI) -> None:
    texts = [f"text {number}" for number in range(600)]
    answer = openai.embeddings.create(model="embed", input=texts)
    np.testing.assert_allclose(answer.data[599].embedding, _expected("text 599"), atol=1e-6)


@pytest.mark.parametrize("value", [[], "", ["a", " "], [1, 2, 3], [[1, 2]], ["x"] * 2049])
def test_what_cannot_be_embedded_is_refused(openai: OpenAI, value: Any) -> None:
    with pytest.raises(openai_package.BadRequestError, match="input"):
        openai.embeddings.create(model="embed", input=value)


def test_other_dimensions_are_refused(openai: OpenAI) -> None:
    with pytest.raises(openai_package.BadRequestError, match="64 dimensions"):
        openai.embeddings.create(model="embed", input="x", dimensions=32)


@pytest.mark.parametrize("dimensions", [0, -1, True, "32", 32.5, [32]])
def test_what_is_no_number_of_dimensions_is_refused_by_name(http: httpx.Client, dimensions: Any) -> None:
    answer = http.post("/v1/embeddings", json={"model": "embed", "input": "x", "dimensions": dimensions})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dimensions")


def test_other_dimensions_are_refused_to_those_who_do_not_wait_too(http: httpx.Client) -> None:
    body = {"model": "embed", "input": "x", "dimensions": 32}
    answer = http.post("/v1/embeddings", json=body, headers={"prefer": "respond-async"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "dimensions")


def test_models_are_listed_and_found(openai: OpenAI, http: httpx.Client) -> None:
    assert [model.id for model in openai.models.list()] == ["chat", "embed", "speak", "transcribe"]
    assert openai.models.retrieve("whisper-1").id == "transcribe"
    with pytest.raises(openai_package.NotFoundError, match="gpt-9"):
        openai.models.retrieve("gpt-9")
    assert http.get("/v1/models/org/name").status_code == 404
