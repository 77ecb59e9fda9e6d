"""`audio.preprocess`, `audio.transcribe` and `video.preprocess` on speech in our own voice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import functions.stages.audio.preprocess
import functions.stages.audio.transcribe
import functions.stages.video.preprocess
from bus.contracts import Event, MediaLimits, TensorRef, TokenChunk
from bus.errors import CancelledRequestError, InvalidInputError, MediaUnreadableError, MediaUnsupportedError
from bus.store.media import save_media
from functions.context import Context
from functions.environment import FunctionEnvironment
from functions.registry import registry
from runtime.media.audio import decode
from runtime.speech.whisper import Whisper
from tests.made.films import film
from tests.made.sounds import encoded, wav
from tests.made.voice import RATE_HZ, said

pytestmark = pytest.mark.models

QUESTION = "What is in this picture?"
STORY = "The quick brown fox jumps over the lazy dog."


def words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


async def items(environment: FunctionEnvironment, *files: bytes) -> list[dict[str, Any]]:
    return [
        {"part": part, "ref": (await save_media(environment.store, data, "audio/wav")).model_dump()}
        for part, data in enumerate(files)
    ]


async def preprocess(environment: FunctionEnvironment, *files: bytes) -> list[dict[str, Any]]:
    outputs = await environment.run("audio.preprocess", {"clips": await items(environment, *files)})
    return list(outputs["clips"])


async def transcribe(environment: FunctionEnvironment, *files: bytes, **options: Any) -> dict[str, Any]:
    clips = await preprocess(environment, *files)
    return await environment.run("audio.transcribe", {"clips": clips, "options": options or None})


def pause(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(seconds * RATE_HZ), np.float32)


async def test_voice_is_found_where_it_is(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([pause(2), said(QUESTION), pause(3), said(STORY), pause(1)])
    (clip,) = await preprocess(environment, wav(sound, RATE_HZ))
    samples = await environment.tensors.get(TensorRef.model_validate(clip["samples"]))
    assert samples.dtype == np.float32
    assert clip["seconds"] == pytest.approx(len(sound) / RATE_HZ, abs=0.01)
    first, last = clip["voice"][0], clip["voice"][-1]
    assert 1.9 < first["start_s"] < 2.8
    assert last["end_s"] < clip["seconds"] - 0.8
    gap = [s for s in clip["voice"] if 2 + len(said(QUESTION)) / RATE_HZ + 0.5 < s["start_s"]]
    assert gap
    assert len(gap) < len(clip["voice"])


@pytest.mark.parametrize("level", [0.0, 0.05])
async def test_silence_and_noise_have_no_voice_and_no_words(environment: FunctionEnvironment, level: float) -> None:
    noise = (level * np.random.default_rng(0).standard_normal(5 * RATE_HZ)).astype(np.float32)
    outputs = await transcribe(environment, wav(noise, RATE_HZ))
    (transcript,) = outputs["transcripts"]
    assert (transcript["text"], transcript["segments"]) == ("", ())
    assert outputs["blocks"][0]["block"]["text"] == ""


@pytest.mark.parametrize("text", [QUESTION, STORY, "The answer is forty two, and the bus is never late."])
async def test_our_own_speech_is_written_down_word_for_word(environment: FunctionEnvironment, text: str) -> None:
    outputs = await transcribe(environment, wav(said(text), RATE_HZ))
    (transcript,) = outputs["transcripts"]
    heard = words(transcript["text"]).replace("42", "forty two")
    assert heard == words(text)
    assert transcript["language"] == "en"
    block = outputs["blocks"][0]["block"]
    assert (block["modality"], block["text"], block["encoder"]) == ("audio", transcript["text"], "whisper-base@2")


async def test_any_rate_and_layout_gives_the_same_words(environment: FunctionEnvironment) -> None:
    fast = np.repeat(said(QUESTION), 2)  # 48 kHz
    surround = np.zeros((6, len(fast)), np.float32)
    surround[2] = fast
    files = [
        encoded(surround, 48_000, "wav", "pcm_s16le", "5.1"),
        encoded(np.stack([fast, fast]), 48_000, "ogg", "libopus", "stereo"),
    ]
    outputs = await transcribe(environment, *files)
    assert [words(one["text"]) for one in outputs["transcripts"]] == [words(QUESTION)] * 2
    assert [one["part"] for one in outputs["transcripts"]] == [0, 1]


async def test_long_sound_is_heard_in_windows_and_loses_nothing(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([piece for _ in range(2) for piece in (said(QUESTION), pause(7), said(STORY), pause(7))])
    outputs = await transcribe(environment, wav(sound, RATE_HZ), timestamps=True, language="en")
    (transcript,) = outputs["transcripts"]
    assert words(transcript["text"]) == words(f"{QUESTION} {STORY} " * 2)
    starts = [segment["start_s"] for segment in transcript["segments"]]
    assert starts == sorted(starts)
    assert len(starts) >= 4
    step_s = (len(said(QUESTION)) + len(said(STORY))) / RATE_HZ + 14
    assert starts[-2] == pytest.approx(step_s, abs=1.5)


async def test_what_is_said_again_is_written_again(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([piece for text in (QUESTION, STORY) * 2 for piece in (said(text), pause(1.5))])
    outputs = await transcribe(environment, wav(sound, RATE_HZ))
    (transcript,) = outputs["transcripts"]
    assert words(transcript["text"]) == words(f"{QUESTION} {STORY} " * 2)
    assert len(transcript["segments"]) == 1


async def test_a_stream_tells_the_text_window_by_window(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([said(QUESTION), pause(30), said(STORY)])
    outputs = await transcribe(environment, wav(sound, RATE_HZ), stream=True)
    told = [chunk.text for chunk in environment.chunks]
    assert [words(text) for text in told] == [words(QUESTION), words(STORY)]
    assert "".join(told) == outputs["transcripts"][0]["text"]


async def test_a_stream_of_several_clips_is_the_text_of_all_of_them(environment: FunctionEnvironment) -> None:
    outputs = await transcribe(environment, wav(said(QUESTION), RATE_HZ), wav(said(STORY), RATE_HZ), stream=True)
    texts = [one["text"] for one in outputs["transcripts"]]
    assert "".join(chunk.text for chunk in environment.chunks) == " ".join(texts)


async def test_who_cancels_between_windows_waits_for_no_other_one(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([piece for text in (QUESTION, STORY) * 2 for piece in (said(text), pause(30))])
    told: list[TokenChunk] = []

    async def tell(chunk: TokenChunk) -> None:
        told.append(chunk)

    inputs = {"clips": await preprocess(environment, wav(sound, RATE_HZ)), "options": {"stream": True}}
    context: Context[Whisper] = Context(
        event=Event(request="r", stage="listen", function="audio.transcribe", pipeline="none", created_s=0.0),
        model=await environment.model(registry.get("audio.transcribe")),
        store=environment.store,
        tensors=environment.tensors,
        encoder_cache=environment.encoder_cache,
        emit_chunk=tell,
        is_cancelled=lambda: bool(told),
    )
    with pytest.raises(CancelledRequestError):
        await functions.stages.audio.transcribe.transcribe(
            context, functions.stages.audio.transcribe.TranscribeInputs.model_validate(inputs)
        )
    assert [words(chunk.text) for chunk in told] == [words(QUESTION)]


async def test_words_have_their_times_in_the_clip(environment: FunctionEnvironment) -> None:
    sound = np.concatenate([pause(3), said(QUESTION), pause(31), said(STORY)])
    outputs = await transcribe(environment, wav(sound, RATE_HZ), words=True)
    (transcript,) = outputs["transcripts"]
    assert words(" ".join(word["text"] for word in transcript["words"])) == words(f"{QUESTION} {STORY}")
    starts = [word["start_s"] for word in transcript["words"]]
    assert starts == sorted(starts)
    assert starts[0] == pytest.approx(3.2, abs=0.4)
    assert starts[len(QUESTION.split())] == pytest.approx(34.2 + len(said(QUESTION)) / RATE_HZ, abs=0.5)
    assert transcript["words"][-1]["end_s"] <= transcript["seconds"]


async def test_an_unknown_language_is_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="'klingon'") as caught:
        await transcribe(environment, wav(said(QUESTION), RATE_HZ), language="klingon")
    assert caught.value.details["param"] == "language"


async def test_bad_sound_is_a_typed_error_and_the_next_one_is_served(environment: FunctionEnvironment) -> None:
    with pytest.raises(MediaUnreadableError):
        await preprocess(environment, b"")
    with pytest.raises(MediaUnsupportedError):
        await preprocess(environment, b"this is text")
    assert len(await preprocess(environment, wav(said(QUESTION), RATE_HZ))) == 1


async def test_a_film_gives_frames_and_its_spoken_words(environment: FunctionEnvironment) -> None:
    sound = decode(wav(said(QUESTION), RATE_HZ), MediaLimits())
    talking = film(range(0, 2000, 100), samples=sound)
    silent = film(range(0, 2000, 100))
    outputs = await environment.run("video.preprocess", {"videos": await items(environment, talking, silent)})
    assert [(one["part"], one["has_audio"]) for one in outputs["videos"]] == [(0, True), (1, False)]
    assert [one["part"] for one in outputs["images"]] == [0, 0, 1, 1]
    assert [one["pixels"]["shape"] for one in outputs["images"]] == [(3, 224, 224)] * 4
    times = [one["time_s"] for one in outputs["images"][:2]]
    assert times == pytest.approx([0.5, 1.5], abs=0.11)
    heard = await environment.run("audio.transcribe", {"clips": outputs["clips"]})
    assert [words(one["text"]) for one in heard["transcripts"]] == [words(QUESTION)]
