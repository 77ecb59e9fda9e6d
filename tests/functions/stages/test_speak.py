"""`speak`, heard by our own ears: what was said is transcribed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import functions.stages.speak  # noqa: F401 - registers the function
from bus.contracts import MediaLimits
from bus.errors import InvalidInputError, LimitExceededError
from functions.environment import FunctionEnvironment
from functions.signals import Skip
from runtime.media.audio import decode
from runtime.media.sniff import sniff

pytestmark = pytest.mark.models


async def speak(environment: FunctionEnvironment, text: str, **options: Any) -> dict[str, Any]:
    outputs = await environment.run("speak", {"text": text, "options": options or None})
    return dict(outputs["speech"])


async def test_a_sentence_becomes_a_wav_of_its_length(environment: FunctionEnvironment) -> None:
    speech = await speak(environment, "Good morning.")
    data = await environment.store.get(speech["audio"]["key"])
    samples = decode(data, MediaLimits(), sample_rate_hz=speech["sample_rate_hz"])
    assert len(samples) == pytest.approx(speech["seconds"] * 24_000, abs=2)
    assert 0.5 < speech["seconds"] < 3
    assert 0.01 < np.sqrt(np.mean(samples**2)) < 0.5


async def test_saying_it_again_gives_the_same_file(environment: FunctionEnvironment) -> None:
    first, second = [await speak(environment, "Yes.") for _ in range(2)]
    assert first["audio"]["digest"] == second["audio"]["digest"]


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("mp3", "audio/mpeg"), ("opus", "audio/ogg"), ("flac", "audio/flac"), ("wav", "audio/wav")],
)
async def test_every_format(environment: FunctionEnvironment, kind: str, media_type: str) -> None:
    speech = await speak(environment, "Yes.", format=kind)
    found = sniff(await environment.store.get(speech["audio"]["key"]))
    assert found is not None
    assert found.media_type == speech["audio"]["media_type"] == media_type


async def test_speed_changes_the_length(environment: FunctionEnvironment) -> None:
    slow, fast = [await speak(environment, "Good morning.", speed=speed) for speed in (0.8, 1.6)]
    assert slow["seconds"] > 1.5 * fast["seconds"]


async def test_an_unknown_voice_is_told_the_known_ones(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="af_heart") as caught:
        await speak(environment, "Hello.", voice="nobody")
    assert caught.value.details["param"] == "voice"


@pytest.mark.parametrize("text", ["", "  \n", "...", "😀", "привет", "你好"])
async def test_what_cannot_be_said_is_a_typed_error(environment: FunctionEnvironment, text: str) -> None:
    with pytest.raises(InvalidInputError, match="can be said"):
        await speak(environment, text)


async def test_what_cannot_be_said_is_skipped_where_speech_is_optional(environment: FunctionEnvironment) -> None:
    with pytest.raises(Skip, match="can be said"):
        await environment.run("speak", {"text": "你好", "optional": True})
    with pytest.raises(InvalidInputError, match="af_heart"):
        await environment.run("speak", {"text": "Hi.", "options": {"voice": "nobody"}, "optional": True})


async def test_a_text_too_long_is_a_typed_error(environment: FunctionEnvironment) -> None:
    with pytest.raises(LimitExceededError, match="8192"):
        await speak(environment, "word " * 2000)


async def test_a_stream_is_told_piece_by_piece_and_is_the_file(environment: FunctionEnvironment) -> None:
    text = "Good morning, everybody. The garden is green today. We will ask again when the train has left the town."
    speech = await speak(environment, text, format="mp3", stream=True)
    whole = await environment.store.get(speech["audio"]["key"])
    told = [chunk.data for chunk in environment.chunks if "audio" in chunk.data]
    assert len(told) >= 2
    sent = b""
    for one in told:
        assert (one["at"], one["rate_hz"]) == (len(sent), 24_000)
        sent += await environment.store.get(one["audio"]["key"])
    assert whole.startswith(sent)
    assert len(whole) - len(sent) < len(whole) / 10
    samples = decode(whole, MediaLimits(), sample_rate_hz=24_000)
    assert len(samples) == pytest.approx(speech["seconds"] * 24_000, abs=4_000)


async def test_who_asks_for_no_stream_is_told_nothing(environment: FunctionEnvironment) -> None:
    await speak(environment, "Yes.")
    assert environment.chunks == []
