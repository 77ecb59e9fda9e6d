"""A native multimodal model through the doors of the real stack, by the official client."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from PIL import Image

from runtime.repository import Repository
from tests.delivery.stack import Stack, running
from tests.functions.stages import native_model
from tests.functions.stages.native_model import NativeModel
from tests.made.pictures import saved
from tests.made.sounds import tone, wav
from tests.runtime.multimodal.drawn import scene

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

STAGES = ("pictures", "see")


@dataclass
class Door:
    """The stack, its client, and the reference."""

    stack: Stack
    client: AsyncOpenAI
    eyes: NativeModel
    models: Path

    async def ask(self, *content: dict[str, Any], **fields: Any) -> Any:
        given = {"model": "eyes", "max_tokens": 24, "temperature": 0, **fields}
        messages: list[Any] = [{"role": "user", "content": list(content)}]
        return await self.client.chat.completions.create(messages=messages, **given)

    async def trace(self, completion: Any) -> dict[str, Any]:
        request = completion.id.removeprefix("chatcmpl-")
        found = await self.stack.http.get(f"{self.stack.info.gateway_url}/v1/requests/{request}/trace")
        return {span["stage"]: span for span in found.json()["spans"] if span["status"] == "ok"}


def image(picture: Image.Image | bytes, **wanted: Any) -> dict[str, Any]:
    data = picture if isinstance(picture, bytes) else saved(picture, "PNG")
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url, **wanted}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def as_reference(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [one if one["type"] == "text" else {"type": "image"} for one in content]}]


@asynccontextmanager
async def door(folder: Path, **variables: str) -> AsyncIterator[Door]:
    """A stack with the demo's models and a small one with eyes."""
    root = folder / "models"
    root.mkdir()
    for model in Repository().root.iterdir():
        if not model.name.startswith(".") and model.is_dir():
            (root / model.name).symlink_to(model)
    eyes = native_model.install(folder / "saved", root)
    given = {
        "OMNIBUS_MODELS": str(root),
        "OMNIBUS_KEEP_GRAPHS": "false",
        "OMNIBUS_WORKERS": "media=1,encode=1,generate=1",
    }
    async with running(folder, **given, **variables) as stack:
        await stack.ready()
        async with AsyncOpenAI(base_url=f"{stack.info.gateway_url}/v1", api_key="none", max_retries=0) as client:
            yield Door(stack, client, eyes, root)


async def check_answers(door: Door) -> None:
    """Text, pictures, streams, and what the response says of them."""
    pictures = [scene(300, 170), scene(60, 200, 1)]
    content = [text("Look: "), image(pictures[0]), text("What is this?"), image(pictures[1])]
    right = door.eyes.answer(as_reference(*content), pictures)
    found = await door.ask(*content)
    assert found.choices[0].message.content == right
    assert found.model == "eyes"
    prompt = door.eyes.prompt(as_reference(*content), pictures)["input_ids"].shape[1]
    assert found.usage.prompt_tokens == prompt
    assert found.usage.prompt_tokens_details.to_dict()["image_tokens"] > 0
    counted = found.usage.prompt_tokens_details.to_dict()
    assert counted["media_embeddings"] == counted["uncompressed_media_embeddings"] > 80
    sources = found.model_extra["omnibus"]["sources"]
    assert [one["param"] for one in sources] == ["messages.0.content.1", "messages.0.content.3"]
    assert {name for one in sources for name in one["encoders"]} == {"eyes@1"}
    pieces = [piece async for piece in await door.ask(*content, stream=True)]
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == right
    assert len(pieces) >= 3  # so small a model is faster than pieces are sent
    traces = [await door.trace(found), await door.trace(pieces[0])]
    assert [(one["pictures"]["details"]["cache_hits"], one["see"]["details"]["encoded"]) for one in traces] == [
        (0, 2),
        (2, 0),
    ]


async def check_choices(door: Door) -> None:
    """Each request by the model that it names."""
    listed = [model.id async for model in await door.client.models.list()]
    assert {"eyes", "smollm2-135m-instruct"} <= set(listed)
    ours, theirs = await asyncio.gather(
        door.ask(text("What is the capital of Japan?"), model="chat"), door.ask(text("Hello"), model="eyes@1")
    )
    assert "Tokyo" in ours.choices[0].message.content
    assert theirs.choices[0].message.content == door.eyes.answer(as_reference(text("Hello")))
    with pytest.raises(openai.NotFoundError, match="eyes@7"):
        await door.ask(text("Hello"), model="eyes@7")
    with pytest.raises(openai.NotFoundError, match="takes: chat, eyes, smollm2"):
        await door.ask(text("Hello"), model="ears")
    body = {"messages": [{"role": "user", "content": []}], "model": "whisper-base"}
    with pytest.raises(openai.BadRequestError, match=r"whisper-base@\d+ is a whisper model"):
        await door.client.post("/pipelines/chat", body=body, cast_to=object)


async def check_refusals(door: Door) -> None:
    """What cannot be done says why, and where in the body."""
    broken = [image(scene(30, 30, seed)) for seed in range(10)]
    broken[6] = image(saved(scene(30, 30), "PNG")[:500])
    with pytest.raises(openai.BadRequestError) as told:
        await door.ask(*broken)
    assert (told.value.code, told.value.param) == ("media_unreadable", "messages.0.content.6")
    clip = base64.b64encode(wav(tone(440, 0.2, 16_000), 16_000)).decode()
    with pytest.raises(openai.BadRequestError, match="eyes@1 takes text, image, not audio") as told:
        await door.ask(text("Hear"), {"type": "input_audio", "input_audio": {"data": clip, "format": "wav"}})
    assert (told.value.code, told.value.param) == ("model_unsupported", "messages.0.content.1")
    with pytest.raises(openai.BadRequestError, match="eyes@1 takes 1024") as told:
        await door.ask(*(image(scene(224, 224, seed)) for seed in range(16)))
    assert (told.value.code, told.value.param) == ("context_length_exceeded", "messages.0.content.15")
    low = await door.ask(image(scene(224, 224), detail="low"), text("?"))
    counted = low.usage.prompt_tokens_details.to_dict()
    assert counted["media_embeddings"] <= counted["uncompressed_media_embeddings"] == 4
    with pytest.raises(openai.BadRequestError, match="detail"):
        await door.ask(image(scene(30, 30), detail="highest"))


async def check_in_the_place_of_another(door: Door) -> None:
    """The chat's own model is whatever the deployer says, by a name that running workers heed."""
    content = [image(scene(50, 60, 4)), text("Well?")]
    right = door.eyes.answer(as_reference(*content), [scene(50, 60, 4)])
    Repository(door.models).alias("smollm2-135m-instruct", "eyes")
    async with asyncio.timeout(30):
        while (await door.ask(*content, model="chat")).choices[0].message.content != right:
            pass


async def test_a_native_model_answers_as_its_reference_does_through_the_door(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        for check in (check_answers, check_choices, check_refusals, check_in_the_place_of_another):
            await check(opened)


async def test_workers_killed_in_the_middle_of_encoding_change_nothing_in_the_answer(tmp_path: Path) -> None:
    chaos = {"OMNIBUS_FUNCTIONS": "tests.delivery.chaos", "CHAOS_FOLDER": str(tmp_path)}
    async with door(tmp_path, **chaos) as opened:
        picture = scene(200, 150, 3)
        content = [image(picture), text("What is this?")]
        for stage in STAGES:
            (tmp_path / f"kill-{stage}").touch()
        asked = asyncio.ensure_future(opened.ask(*content))
        killed = set()
        while not asked.done():
            for path in tmp_path.glob("at-*"):
                os.kill(int(path.read_text()), signal.SIGKILL)
                killed.add(path.name.removeprefix("at-"))
                path.unlink()
            await asyncio.sleep(0.01)
        found = await asked
        assert killed == set(STAGES)
        assert found.choices[0].message.content == opened.eyes.answer(as_reference(*content), [picture])
        attempts = {stage: span["attempt"] for stage, span in (await opened.trace(found)).items()}
        assert all(attempts[stage] > 1 for stage in STAGES)
