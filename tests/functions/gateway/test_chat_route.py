"""Which pipeline answers a chat, and what it is told of the media."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bus.errors import InvalidInputError, MediaUnreadableError, ModelUnsupportedError
from bus.store.directory import DirectoryObjectStore
from functions.gateway.chat_parts import ChatMedia
from functions.gateway.chat_route import route_of
from functions.gateway.model_names import Chosen
from functions.gateway.openai_chat_body import ChatBody, chat_inputs
from tests.functions.gateway.test_model_names import OWN, manifest

EYES = manifest("eyes", version="2", modalities_in=("text", "image"), parameters={"end_tokens": [2], "multimodal": {}})
URL = "data:image/png;base64,AAAA"
CLIP = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def body(*content: Any, model: str = "eyes") -> ChatBody:
    return ChatBody.model_validate({"model": model, "messages": [{"role": "user", "content": list(content)}]})


def image(**wanted: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": URL, **wanted}}


async def told(
    asked: ChatBody, chosen: Chosen, folder: Path, taken: Collection[str] = ("messages", "media", "model")
) -> tuple[str, dict[str, Any], ChatMedia]:
    """The pipeline and its inputs."""
    route, media = route_of(chosen, asked), ChatMedia()
    async with DirectoryObjectStore(folder) as store:
        inputs = await chat_inputs(asked, store, media) | route.inputs(media, taken)
    return route.pipeline, inputs, media


async def test_a_model_with_eyes_of_its_own_is_asked_through_the_native_pipeline(tmp_path: Path) -> None:
    chosen = Chosen("eyes", "eyes@2", EYES)
    asked = body(image(detail="low"), {"type": "text", "text": "?"}, image(), image(max_tokens=9, ocr=True))
    pipeline, inputs, _ = await told(asked, chosen, tmp_path)
    assert (pipeline, inputs["model"]) == ("native", "eyes@2")
    assert inputs["options"] == [
        {"part": 0, "detail": "low", "max_tokens": None},
        {"part": 2, "detail": "auto", "max_tokens": 9},
    ]
    assert inputs["read"] == [2]
    assert [part.get("part") for part in inputs["messages"][0]["content"]] == [0, None, 1, 2]


async def test_a_native_model_that_the_deployer_put_in_the_place_of_the_own_is_named(tmp_path: Path) -> None:
    pipeline, inputs, _ = await told(body(image()), Chosen("chat", None, EYES), tmp_path)
    assert (pipeline, inputs["model"]) == ("native", "eyes@2")


@pytest.mark.parametrize(("chosen", "model"), [(Chosen("own"), None), (Chosen("own", "own@1", OWN), "own@1")])
async def test_a_model_of_text_is_asked_through_the_composition(
    chosen: Chosen, model: str | None, tmp_path: Path
) -> None:
    pipeline, inputs, _ = await told(body(image(detail="high"), CLIP), chosen, tmp_path)
    assert (pipeline, inputs.get("model")) == ("chat", model)
    assert "options" not in inputs
    assert "read" not in inputs


async def test_media_go_to_the_version_that_their_pipeline_was_chosen_for(tmp_path: Path) -> None:
    chosen = Chosen("own", None, OWN)
    _, inputs, _ = await told(body(image()), chosen, tmp_path)
    assert inputs["model"] == OWN.ref
    _, inputs, _ = await told(body({"type": "text", "text": "?"}), chosen, tmp_path)
    assert "model" not in inputs
    _, inputs, _ = await told(body(image()), chosen, tmp_path, taken=("messages", "media"))
    assert "model" not in inputs


def test_media_that_the_model_does_not_take_are_named_where_they_are() -> None:
    with pytest.raises(
        ModelUnsupportedError, match=r"messages.0.content.1: eyes@2 takes text, image, not audio"
    ) as told:
        route_of(Chosen("eyes", "eyes@2", EYES), body(image(), CLIP))
    assert told.value.details["param"] == "messages.0.content.1"


@pytest.mark.parametrize("wanted", [{"detail": "highest"}, {"max_tokens": 0}, {"max_tokens": "many"}, {"ocr": "maybe"}])
def test_what_is_no_way_to_look_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wanted))):
        body(image(**wanted))


async def test_an_error_about_a_piece_of_media_names_its_place_in_the_body(tmp_path: Path) -> None:
    asked = body({"type": "text", "text": "?"}, image(), image())
    _, _, media = await told(asked, Chosen("eyes", "eyes@2", EYES), tmp_path)
    with pytest.raises(MediaUnreadableError) as error, media.named():
        raise MediaUnreadableError("media 1: cut short", part=1)
    assert error.value.details["param"] == "messages.0.content.2"
    for details in ({"part": 7}, {"part": "x"}, {}):
        with pytest.raises(InvalidInputError) as other, media.named():
            raise InvalidInputError("elsewhere", **details)
        assert "param" not in other.value.details
