"""Speech through the official client: whole, as a file that is still being made, and as events."""

from __future__ import annotations

import base64
import io
import json
import time
import wave
from uuid import uuid4

import httpx
import pytest
from blake3 import blake3
from openai import OpenAI


def test_a_text_is_spoken(openai: OpenAI) -> None:
    with openai.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input="ten letter", response_format="wav"
    ) as response:
        assert response.headers["content-type"] == "audio/wav"
        data = response.read()
    with wave.open(io.BytesIO(data)) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(0.1)


def test_each_format_has_its_media_type(openai: OpenAI) -> None:
    expected = {"mp3": "audio/mpeg", "opus": "audio/ogg", "flac": "audio/flac", "pcm": "audio/pcm"}
    for response_format, media_type in expected.items():
        response = openai.audio.speech.with_raw_response.create(
            model="speak", voice="nova", input="hi", response_format=response_format  # type: ignore[arg-type]
        )  # fmt: skip
        assert response.headers["content-type"] == media_type


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "   "},
        {"speed": 9.0},
        {"response_format": "aac"},
        {"stream_format": "video"},
        {"voice": {"name": "x"}},
    ],
)
def test_speech_that_cannot_be_made_is_refused(http: httpx.Client, fields: dict[str, object]) -> None:
    body = {"model": "speak", "input": "hi", "voice": "alloy", **fields}
    response = http.post("/v1/audio/speech", json=body)
    assert response.status_code == 400
    assert next(iter(fields)) in response.json()["error"]["message"]


def _wav_of(response: httpx.Response) -> tuple[int, int]:
    """Rate and number of samples."""
    with wave.open(io.BytesIO(response.content)) as file:
        return file.getframerate(), file.getnframes()


@pytest.mark.parametrize("response_format", ["mp3", "wav"])
def test_a_file_that_is_sent_while_it_is_made_has_every_part_once(http: httpx.Client, response_format: str) -> None:
    body = {"model": "speak", "input": "twenty letters " * 10, "voice": "alloy", "response_format": response_format}
    streamed = http.post("/v1/audio/speech", json={**body, "stream_format": "audio"})
    assert "content-length" not in streamed.headers
    assert _wav_of(streamed) == (8000, 12_000)  # the parrot gives a WAV whatever it is asked for


@pytest.mark.parametrize("form", [{"response_format": "pcm"}, {"stream_format": "audio"}, {"stream_format": "sse"}])
def test_a_stream_tells_its_sample_rate_before_its_first_part(http: httpx.Client, form: dict[str, str]) -> None:
    streamed = http.post("/v1/audio/speech", json={"model": "speak", "input": "ten letter", "voice": "alloy", **form})
    assert streamed.headers["x-omnibus-sample-rate-hz"] == "8000"


def test_the_first_part_is_there_before_the_last_is_made_and_who_leaves_cancels(http: httpx.Client) -> None:
    text = f"{uuid4()} wait"
    body = {"model": "speak", "input": text, "voice": "alloy"}
    with http.stream("POST", "/v1/audio/speech", json=body) as response:
        assert response.headers["content-type"] == "audio/mpeg"
        assert next(response.iter_raw()).startswith(b"RIFF")
    key, deadline = blake3(f"cancelled: {text}".encode()).hexdigest(), time.monotonic() + 20
    while not http.get(f"/v1/media/{key}").is_success:
        assert time.monotonic() < deadline


def test_a_stream_of_events_carries_the_file_and_ends(http: httpx.Client) -> None:
    body = {"model": "speak", "input": "ten letter", "voice": "alloy", "stream_format": "sse"}
    response = http.post("/v1/audio/speech", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]
    assert [event["type"] for event in events] == ["speech.audio.delta"] * 2 + ["speech.audio.done"]
    data = b"".join(base64.b64decode(event["audio"]) for event in events[:2])
    with wave.open(io.BytesIO(data)) as file:
        assert file.getnframes() == 800


def test_an_error_before_the_first_part_is_an_error_of_its_own(http: httpx.Client) -> None:
    body = {"model": "speak", "input": "hello", "voice": "alloy", "speed": 3.9, "response_format": "opus"}
    response = http.post("/v1/audio/speech", json={**body, "input": "fail at once fail"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "nothing_to_say"


def test_an_error_amid_events_is_the_last_event(http: httpx.Client) -> None:
    body = {"model": "speak", "input": "fail", "voice": "alloy", "stream_format": "sse"}
    *_, last = [line for line in http.post("/v1/audio/speech", json=body).text.splitlines() if line]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "nothing_to_say"
