"""Films, sound and pictures together, on positions of three axes: Qwen2.5-Omni through the native pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from bus.contracts import MediaLimits, Modality
from bus.errors import MediaTooLargeError
from bus.store.media import save_media
from functions.client import PipelineClient
from functions.environment import FunctionEnvironment
from functions.flow.catalog import Pipelines
from functions.registry import registry
from runtime.media import audio, video
from runtime.multimodal.family import Detail, Film
from runtime.multimodal.media import Readier
from runtime.repository import Repository
from tests.made.films import drifting, film
from tests.made.pictures import saved
from tests.made.sounds import wav
from tests.made.voice import said
from tests.runtime.media.test_video import damaged
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import scene
from tests.runtime.multimodal.heard import RATE, sound
from tests.runtime.multimodal.omni import CLIP, FILM, PICTURE, Pair, Piece, Seen
from tests.runtime.multimodal.test_qwen_omni import pair

__all__ = ["pair"]  # the fixture: one model, whose parity is tested there

registry.load("functions.stages")

LIMITS = MediaLimits()
WITH_SOUND = film(
    range(0, 4000, 100), width=96, height=64, samples=sound(4 * RATE), drawn=drifting(96, 64), container="matroska"
)
SILENT = film(range(0, 2000, 100), width=64, height=96, drawn=drifting(64, 96))


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[tuple[FunctionEnvironment, PipelineClient]]:
    root = pair.served._folder.parent.parent
    async with FunctionEnvironment(models=root) as environment:
        (plan,) = [plan for plan in Pipelines.load(registry) if plan.pipeline == "native"]
        yield environment, await environment.serve(plan)
        for name, model in environment._models.items():
            if name.startswith(("generate", "tokens.encode")):
                model.close()


def seen(pair: Pair, data: bytes) -> Seen:
    """A film as the reference is given it: the frames that the family asks for, and the track."""
    with video.open_video(data, LIMITS) as opened:
        moments = pair.served.family.frames(opened.seconds, opened.frames_per_second, Detail())
        frames = [frame.image for frame in opened.frames.at(moments)]
        seconds = opened.seconds
    return Seen(Film(frames, moments, seconds), video.sound(data, LIMITS))


async def answered(
    client: tuple[FunctionEnvironment, PipelineClient],
    turns: list[list[dict[str, Any]]],
    media: list[tuple[bytes, Modality]],
    **inputs: Any,
) -> dict[str, Any]:
    """The pipeline's answer; the user and the assistant take turns."""
    environment, pipeline = client
    refs = [await save_media(environment.store, data, "application/octet-stream") for data, _ in media]
    given: dict[str, Any] = {
        "messages": [
            {"role": ("user", "assistant")[place % 2], "content": content} for place, content in enumerate(turns)
        ],
        "media": [
            {"ref": ref.model_dump(), "modality": kind.value} for ref, (_, kind) in zip(refs, media, strict=True)
        ],
        "model": "small",
        "sampling": {"max_tokens": 24},
        **inputs,
    }
    async with pipeline.submit("native", given) as running:
        answer: dict[str, Any] = (await running.outputs())["answer"]
    return answer


def check(found: dict[str, Any], pair: Pair, text: str, *pieces: Piece) -> None:
    """The number of tokens and the answer of the reference."""
    # Jinja takes the line break at the end of a template away.
    right = pair.right(text + "<|im_start|>assistant", *pieces)
    tokens = merged.greedy(pair.model, right.embedded, 24, right.positions)
    assert found["usage"]["prompt_tokens"] == len(right.ids)
    assert found["text"] == str(pair.words.decode(tokens, skip_special_tokens=True)).replace("\ufffd", "")


async def test_films_sound_and_pictures_get_the_answer_of_the_reference(
    pair: Pair, client: tuple[FunctionEnvironment, PipelineClient]
) -> None:
    clip, picture = wav(sound(20_000, 1), RATE), scene(300, 170)
    turns: list[list[dict[str, Any]]] = [
        [{"text": "A picture "}, {"part": 0}, {"text": ", a film "}, {"part": 1}],
        [{"text": "Yes."}],
        [{"part": 2}, {"text": "and?"}],
    ]
    media = [(saved(picture, "PNG"), Modality.IMAGE), (WITH_SOUND, Modality.VIDEO), (clip, Modality.AUDIO)]
    found = await answered(client, turns, media)
    text = (
        f"<|im_start|>user\nA picture {PICTURE}, a film {FILM}<|im_end|>\n"
        f"<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\n{CLIP}and?<|im_end|>\n"
    )
    heard = audio.decode(clip, LIMITS)
    check(found, pair, text, ("image", picture), ("video", seen(pair, WITH_SOUND)), ("audio", heard))
    assert [source["modality"] for source in found["sources"]] == ["image", "video", "audio"]
    assert found["sources"][0]["end_s"] is None
    for source, seconds in zip(found["sources"][1:], (4.0, 1.25), strict=True):
        assert source["start_s"] == 0.0
        np.testing.assert_allclose(source["end_s"], seconds, atol=0.1)


async def test_a_silent_film_is_a_film_and_its_silence_is_remembered(
    pair: Pair, client: tuple[FunctionEnvironment, PipelineClient]
) -> None:
    environment, _ = client
    text = f"<|im_start|>user\nFilm {FILM} and?<|im_end|>\n"
    turns: list[list[dict[str, Any]]] = [[{"text": "Film "}, {"part": 0}, {"text": " and?"}]]
    for _ in range(2):
        found = await answered(client, turns, [(SILENT, Modality.VIDEO)])
        check(found, pair, text, ("video", seen(pair, SILENT)))
    statistics = environment.encoder_cache.statistics
    assert (statistics["hits"], statistics["misses"]) == (2, 2)  # of its picture and of its track


@pytest.mark.models
async def test_what_is_said_is_written_down_beside_the_sound_where_that_is_asked_for(
    pair: Pair, client: tuple[FunctionEnvironment, PipelineClient]
) -> None:
    root, demo = pair.served._folder.parent.parent, Repository().root
    for name in ("whisper-base", "silero-vad"):
        (root / name).symlink_to(demo / name)
    question = said("What is the capital of Japan?")  # 24 kHz
    spoken = wav(np.concatenate([np.zeros(24_000, np.float32), question]), 24_000)
    turns, media = [[{"part": 0}, {"part": 1}]], [(spoken, Modality.AUDIO), (SILENT, Modality.VIDEO)]
    plain = await answered(client, turns, media)
    told = await answered(client, turns, media, listen=[0, 1])
    (segment,) = told["sources"][0]["segments"]
    assert segment["text"] == "What is the capital of Japan?"
    assert 0.5 < segment["start_s"] < 1.5 < segment["end_s"] < 4
    assert told["transcripts"][0]["text"] == segment["text"]
    assert told["sources"][1]["segments"] == []
    assert plain["sources"][0]["segments"] == []
    assert told["sources"][0]["tokens"] > plain["sources"][0]["tokens"]
    assert told["sources"][0]["spans"] == plain["sources"][0]["spans"]
    assert told["sources"][1]["tokens"] == plain["sources"][1]["tokens"]


async def test_a_film_over_the_limit_is_refused_with_the_limit_and_the_model(
    client: tuple[FunctionEnvironment, PipelineClient],
) -> None:
    environment, _ = client
    ref = await save_media(environment.store, WITH_SOUND, "video/x-matroska")
    inputs = {"media": [{"part": 2, "ref": ref}], "modality": "video", "model": "small", "limits": {"max_seconds": 3.0}}
    with pytest.raises(MediaTooLargeError, match=r"media 2 for small@1: the media is 4 s long or longer; at most 3 s"):
        await environment.run("tokens.prepare", inputs)


async def test_a_damaged_frame_in_the_middle_of_a_film_costs_that_frame_and_is_told(
    pair: Pair, client: tuple[FunctionEnvironment, PipelineClient]
) -> None:
    environment, _ = client
    whole = film(range(0, 4000, 100), width=128, height=64, drawn=drifting(128, 64))
    spoilt = damaged(whole, 17)
    tokens = []
    for data in (whole, spoilt):
        ref = await save_media(environment.store, data, "video/x-matroska")
        inputs = {"media": [{"part": 0, "ref": ref}], "modality": "video", "model": "small"}
        found = await environment.run("tokens.prepare", inputs)
        tokens.append(sum(piece["slots"] for piece in found["media"][0]["frame"]))
    assert tokens[0] == tokens[1] > 0
    readier = Readier(pair.served.family)
    told = readier.ready(spoilt, Modality.VIDEO, Detail(), LIMITS)[0]
    assert all(1.0 < second < 3.0 for second in told.damaged_s)
    assert told.damaged_s
    assert readier.ready(whole, Modality.VIDEO, Detail(), LIMITS)[0].damaged_s == ()
