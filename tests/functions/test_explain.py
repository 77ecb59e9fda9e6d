"""What an answer needed, on the chat pipeline with the demo's models."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bus.contracts import MediaRef
from bus.errors import UnknownRequestError
from bus.store.media import load_media, save_media
from functions.client import PipelineClient, new_request_id
from functions.environment import FunctionEnvironment
from functions.explain import Explainer
from functions.flow.catalog import Pipelines
from functions.registry import registry
from functions.stages.explain.influence import Explanation
from runtime.media.encode import encode
from runtime.repository import Repository
from tests.made.voice import said

pytestmark = pytest.mark.models

registry.load("functions.stages")


@dataclass
class Chat:
    environment: FunctionEnvironment
    client: PipelineClient

    async def answered(self, *content: dict[str, Any], media: list[MediaRef]) -> tuple[str, str]:
        """A request's id and its answer."""
        request = new_request_id()
        inputs = {
            "messages": [{"role": "user", "content": list(content)}],
            "media": [{"ref": ref.model_dump()} for ref in media],
            "sampling": {"max_tokens": 24},
        }
        async with self.client.submit("chat", inputs, request=request) as running:
            return request, (await running.outputs())["answer"]["text"]

    async def explained(self, request: str, **how: Any) -> Explanation:
        return await Explainer(self.client, self.environment.store).explain(request, **how)

    async def picture(self, ref: MediaRef | None) -> Image.Image:
        assert ref is not None
        return Image.open(io.BytesIO(await load_media(self.environment.store, ref, 2**24)))


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with FunctionEnvironment() as environment:
        names = ("chat", "explain-mask", "explain-draw")
        plans = [plan for plan in Pipelines.load(registry) if plan.pipeline in names]
        yield Chat(environment, await environment.serve(*plans))


async def test_the_half_of_a_picture_with_the_cat_in_it_made_the_answer_name_a_cat(chat: Chat) -> None:
    repository = Repository()
    cat = Image.open(repository.file(repository.resolve("cat-photo"), "chelsea.png")).convert("RGB").resize((240, 240))
    page = Image.new("RGB", (480, 240), (128, 128, 128))
    page.paste(cat)
    out = io.BytesIO()
    page.save(out, "PNG")
    ref = await save_media(chat.environment.store, out.getvalue(), "image/png")
    request, answer = await chat.answered({"part": 0}, {"text": "What is in this picture?"}, media=[ref])
    assert "cat" in answer
    explanation = await chat.explained(request, parts=2)
    assert (explanation.request, explanation.answer) == (request, answer)
    (part,) = explanation.parts
    assert part.nats > 1
    assert explanation.modalities["image"] == part.nats
    assert set(explanation.modalities) == {"image", "text"}
    halves = {place.box: place.nats for place in part.places}
    left = [nats for box, nats in halves.items() if box is not None and box[0] == 0]
    right = [nats for box, nats in halves.items() if box is not None and box[0] == 0.5]
    assert max(left) > 0.5
    assert max(left) > 3 * max(map(abs, right))
    drawn = np.asarray((await chat.picture(part.picture)).convert("RGB"), int)
    redness = (drawn[..., 0] - drawn[..., 2])[:384]
    assert redness[:, :384].mean() > redness[:, 384:].mean() + 10


async def test_the_seconds_in_which_a_question_was_spoken_made_the_answer(chat: Chat) -> None:
    question = said("What is the capital of Japan?")  # 24 kHz
    clip = np.concatenate([np.zeros(24_000 * 4, np.float32), question])
    ref = await save_media(chat.environment.store, encode(clip, 24_000, "wav")[0], "audio/wav")
    request, answer = await chat.answered({"part": 0}, media=[ref])
    assert "Tokyo" in answer
    explanation = await chat.explained(request, parts=6, draw=False)
    (part,) = explanation.parts
    assert part.modality == "audio"
    assert part.picture is None
    quiet = [place.nats for place in part.places if place.span_s is not None and place.span_s[1] <= 4]
    spoken = [place.nats for place in part.places if place.span_s is not None and place.span_s[1] > 4]
    assert max(spoken) > 2
    assert max(map(abs, quiet)) < 0.2 * max(spoken)


async def test_what_cannot_be_explained_says_why(chat: Chat) -> None:
    with pytest.raises(UnknownRequestError, match="no media were in it, or it is too long ago"):
        await chat.explained("0123abc")
    request, _ = await chat.answered({"text": "Hello"}, media=[])
    with pytest.raises(UnknownRequestError, match="no media were in it"):
        await chat.explained(request)
