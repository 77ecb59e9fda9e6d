from __future__ import annotations

import io
from typing import Literal

import httpx
import openai as openai_package
import pytest
from openai import OpenAI
from openai.types.audio import TranscriptionVerbose

from tests.functions.gateway.media import png, wav


def _file(data: bytes, name: str = "speech.wav") -> io.BytesIO:
    file = io.BytesIO(data)
    file.name = name
    return file


def test_a_file_is_transcribed(openai: OpenAI) -> None:
    transcription = openai.audio.transcriptions.create(model="whisper-1", file=_file(wav(2.5)))
    assert transcription.text == "loud quiet quiet"


def test_verbose_json_has_times_and_language(openai: OpenAI) -> None:
    verbose = openai.audio.transcriptions.create(
        model="transcribe", file=_file(wav(2.5)), response_format="verbose_json", language="en"
    )
    assert (verbose.text, verbose.language, verbose.duration) == ("loud quiet quiet", "en", 2.5)
    assert verbose.segments is not None
    assert [(segment.start, segment.end, segment.text) for segment in verbose.segments] == [
        (0.0, 1.0, "loud"),
        (1.0, 2.0, "quiet"),
        (2.0, 2.5, "quiet"),
    ]


def test_words_have_times_when_they_are_asked_for(openai: OpenAI) -> None:
    def transcribed(*granularities: Literal["word", "segment"]) -> TranscriptionVerbose:
        return openai.audio.transcriptions.create(
            model="whisper-1",
            file=_file(wav(1.5)),
            response_format="verbose_json",
            timestamp_granularities=list(granularities),
        )

    words = transcribed("word")
    assert words.words is not None
    assert [(word.start, word.end, word.word) for word in words.words] == [(0.0, 1.0, "loud"), (1.0, 1.5, "quiet")]
    assert words.segments is None
    both = transcribed("word", "segment")
    assert both.segments is not None
    assert both.words == words.words
    assert transcribed("segment").words is None


@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        ("text", "loud quiet\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:01,000\nloud\n\n2\n00:00:01,000 --> 00:00:01,500\nquiet\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nloud\n\n00:00:01.000 --> 00:00:01.500\nquiet\n"),
    ],
)
def test_text_formats_come_as_text(http: httpx.Client, response_format: str, expected: str) -> None:
    response = http.post(
        "/v1/audio/transcriptions",
        data={"model": "transcribe", "response_format": response_format},
        files={"file": ("a.wav", wav(1.5), "audio/wav")},
    )
    assert response.text == expected
    assert response.headers["content-type"].startswith(("text/", "application/x-subrip"))


def test_a_transcript_streams_as_it_is_written_and_ends_whole(openai: OpenAI) -> None:
    events = list(openai.audio.transcriptions.create(model="whisper-1", file=_file(wav(2.5)), stream=True))
    assert [event.type for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == "loud quiet quiet"
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == "loud quiet quiet"


def test_a_stream_that_lost_a_part_tells_no_part_twice(openai: OpenAI) -> None:
    events = list(
        openai.audio.transcriptions.create(model="whisper-1", file=_file(wav(2.5)), stream=True, prompt="lost")
    )
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == "loud quiet quiet"


def test_a_stream_of_a_file_without_sound_is_an_error_of_its_own(openai: OpenAI) -> None:
    with pytest.raises(openai_package.APIStatusError, match="no sound"):
        openai.audio.transcriptions.create(model="transcribe", file=_file(png(), "speech.png"), stream=True)


def test_a_picture_has_no_sound(openai: OpenAI) -> None:
    with pytest.raises(openai_package.APIStatusError, match="no sound") as caught:
        openai.audio.transcriptions.create(model="transcribe", file=_file(png(), "speech.png"))
    assert caught.value.status_code == 415


def test_a_file_that_is_no_media_or_empty_is_refused(openai: OpenAI) -> None:
    for data, status in ((b"not media at all", 415), (b"", 400)):
        with pytest.raises(openai_package.APIStatusError) as caught:
            openai.audio.transcriptions.create(model="transcribe", file=_file(data))
        assert caught.value.status_code == status


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({}, "model"),
        ({"model": "transcribe", "response_format": "ass"}, "response_format"),
        ({"model": "transcribe", "stream": "true", "response_format": "srt"}, "response_format"),
        ({"model": "whisper-9"}, "model"),
        ({"model": "transcribe", "timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
        (
            {"model": "transcribe", "response_format": "verbose_json", "timestamp_granularities[]": "letter"},
            "timestamp_granularities[].0",
        ),
        ({"model": "transcribe", "prompt": "word " * 1000}, "prompt"),
        ({"model": "transcribe", "temperature": "1.1"}, "temperature"),
        ({"model": "transcribe", "temperature": "nan"}, "temperature"),
        ({"model": "transcribe", "temperature": "warm"}, "temperature"),
    ],
)
def test_a_form_field_that_is_wrong_is_named(http: httpx.Client, form: dict[str, str], param: str) -> None:
    response = http.post("/v1/audio/transcriptions", data=form, files={"file": ("a.wav", wav(0.1))})
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param


def test_a_form_without_a_file_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/audio/transcriptions", data={"model": "transcribe"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "file"
