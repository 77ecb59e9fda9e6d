"""A chat model of one's own in the place of the chat pipeline's: built, named, and asked through the stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bus.contracts import TensorRef
from bus.errors import ContextLengthError
from functions.environment import FunctionEnvironment
from functions.registry import registry
from infra.cli.models import models
from tests.runtime import reference
from tests.runtime.export.folders import Saved, chat_folder

registry.load("functions.stages")

ANSWER = "The capital of Japan is Tokyo."
QUESTION = "  What is the capital of France?\n"  # which the model's own template trims


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """A small chat model, installed under the name of the pipeline's own by two commands."""
    monkeypatch.setenv("OMNIBUS_MODELS", str(tmp_path / "models"))
    saved = chat_folder(tmp_path / "mine")
    for line in (["build", str(saved.folder), "--quantize", "float32"], ["alias", "smollm2-135m-instruct", "mine"]):
        found = CliRunner().invoke(models, line, catch_exceptions=False)
        assert found.exit_code == 0, found.output
    return saved


@pytest.fixture
async def environment(saved: Saved) -> Any:
    async with FunctionEnvironment() as environment:
        yield environment


@pytest.fixture
def closed(environment: FunctionEnvironment) -> Iterator[None]:
    yield
    environment._models["generate"].close()


@pytest.mark.usefixtures("closed")
async def test_the_stages_answer_as_the_reference_does(environment: FunctionEnvironment, saved: Saved) -> None:
    prompt = (await environment.run("fuse", {"messages": [{"role": "user", "content": [{"text": QUESTION}]}]}))[
        "prompt"
    ]
    ids = (await environment.tensors.get(TensorRef.model_validate(prompt["ids"]))).tolist()
    chat = [{"role": "user", "content": QUESTION}]
    assert ids == saved.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert prompt["model"] == "mine@1"

    answer = await environment.run("generate", {"prompt": prompt, "sampling": {"max_tokens": 16, "temperature": 0}})
    right = reference.greedy(saved.model, ids, 16)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["text"] == str(saved.tokenizer.decode(right, skip_special_tokens=True)).replace("\ufffd", "")


@pytest.mark.usefixtures("closed")
async def test_an_answer_that_is_given_is_told_about_in_full_or_not_at_all(environment: FunctionEnvironment) -> None:
    async def told(words: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": [{"text": "a" * words}]}]
        prompt = (await environment.run("fuse", {"messages": messages, "answer": ANSWER}))["prompt"]
        return await environment.run("generate", {"prompt": prompt, "answer": ANSWER})

    found = await told(1)
    (choice,) = found["choices"]
    count = len(choice["logprobs"])
    assert choice["text"] == ANSWER
    context = environment._models["generate"].engine.context
    # A letter is a token: there is room for all but the last two of the answer, of which the last takes no place.
    letters = 1 + context + 1 - found["usage"]["prompt_tokens"] - (count - 2)
    with pytest.raises(ContextLengthError, match=rf"{count - 2} of {count} tokens of the answer"):
        await told(letters)
