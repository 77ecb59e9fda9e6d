"""`media.fetch`: everything stored once, its kind told from its content."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import functions.stages.media.fetch  # noqa: F401 - registers the function
from bus.contracts.codec import digest
from bus.errors import (
    InvalidInputError,
    LimitExceededError,
    MediaFetchError,
    MediaTooLargeError,
    MediaUnreadableError,
    MediaUnsupportedError,
    ObjectMissingError,
)
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from tests.made.films import film
from tests.made.pictures import corners, saved
from tests.made.sounds import encoded, tone, wav

PNG = saved(corners(32, 32), "PNG")
WAV = wav(tone(440, 0.2, 8_000), 8_000)
FILM = film([0, 40])
M4A_AS_MP4 = encoded(tone(440, 0.2, 48_000)[None], 48_000, "mp4", "aac", "mono")


def data_url(data: bytes, media_type: str = "application/octet-stream") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


async def fetch(environment: FunctionEnvironment, *media: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await environment.run("media.fetch", {"media": list(media), **more})


async def test_media_is_sorted_by_what_it_is_and_keeps_its_place(environment: FunctionEnvironment) -> None:
    outputs = await fetch(
        environment, {"url": data_url(WAV)}, {"url": data_url(PNG)}, {"url": data_url(FILM)}, {"url": data_url(PNG)}
    )
    assert [item["part"] for item in outputs["images"]] == [1, 3]
    assert [item["part"] for item in outputs["audio"]] == [0]
    assert [item["part"] for item in outputs["videos"]] == [2]
    assert outputs["images"][0]["ref"]["media_type"] == "image/png"


async def test_content_is_stored_under_its_digest(environment: FunctionEnvironment) -> None:
    outputs = await fetch(environment, {"url": data_url(PNG)})
    ref = outputs["images"][0]["ref"]
    assert (ref["digest"], ref["key"], ref["nbytes"]) == (digest(PNG), f"media/{digest(PNG)}", len(PNG))
    assert await environment.store.get(ref["key"]) == PNG


async def test_the_declared_type_and_the_name_are_not_believed(environment: FunctionEnvironment) -> None:
    ref = await save_media(environment.store, PNG, "image/jpeg", "holiday.jpg")
    outputs = await fetch(environment, {"ref": ref.model_dump()}, {"url": data_url(PNG, "video/mp4")})
    assert [item["ref"]["media_type"] for item in outputs["images"]] == ["image/png", "image/png"]
    assert outputs["images"][0]["ref"]["name"] == "holiday.jpg"


async def test_a_film_may_be_sent_as_its_sound(environment: FunctionEnvironment) -> None:
    outputs = await fetch(environment, {"url": data_url(FILM), "modality": "audio"})
    assert (len(outputs["audio"]), len(outputs["videos"])) == (1, 0)


async def test_a_film_container_with_sound_alone_is_sound(environment: FunctionEnvironment) -> None:
    outputs = await fetch(environment, {"url": data_url(M4A_AS_MP4)})
    assert (len(outputs["audio"]), len(outputs["videos"])) == (1, 0)


@pytest.mark.parametrize(
    ("data", "said", "right"),
    [(PNG, "audio", "image"), (WAV, "image", "audio"), (WAV, "video", "audio"), (FILM, "image", "audio or video")],
)
async def test_what_is_not_what_the_sender_says_is_refused(
    environment: FunctionEnvironment, data: bytes, said: str, right: str
) -> None:
    with pytest.raises(MediaUnsupportedError, match=f"sent as {said} but is .*; send it as {right}$"):
        await fetch(environment, {"url": data_url(data), "modality": said})


@pytest.mark.parametrize("data", [b"hello", b"<html></html>", b"%PDF-1.7\n"])
async def test_unknown_formats_are_refused(environment: FunctionEnvironment, data: bytes) -> None:
    with pytest.raises(MediaUnsupportedError, match="media 0"):
        await fetch(environment, {"url": data_url(data)})


async def test_an_empty_file_is_unreadable(environment: FunctionEnvironment) -> None:
    with pytest.raises(MediaUnreadableError, match="0 bytes"):
        await fetch(environment, {"url": "data:image/png,"})


async def test_too_many_bytes_are_refused(environment: FunctionEnvironment) -> None:
    ref = await save_media(environment.store, PNG, "image/png")
    for source in ({"ref": ref.model_dump()}, {"url": data_url(PNG)}):
        with pytest.raises(MediaTooLargeError):
            await fetch(environment, source, limits={"max_bytes": 20})


async def test_too_many_pieces_are_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(LimitExceededError, match="3 pieces"):
        await fetch(environment, *[{"url": data_url(PNG)}] * 3, limits={"max_items": 2})


async def test_a_reference_to_nothing_is_a_typed_error(environment: FunctionEnvironment) -> None:
    ref = await save_media(environment.store, PNG, "image/png")
    await environment.store.delete(ref.key)
    with pytest.raises(ObjectMissingError):
        await fetch(environment, {"ref": ref.model_dump()})


async def test_an_inner_address_is_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(MediaFetchError, match="not a public address"):
        await fetch(environment, {"url": "http://127.0.0.1/a.png"})


async def test_a_source_without_ref_or_url_is_outside_the_contract(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError):
        await fetch(environment, {"modality": "image"})
