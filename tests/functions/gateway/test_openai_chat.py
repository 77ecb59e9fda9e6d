"""Chat through the official client, against a gateway process."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import httpx
import openai as openai_package
import pytest
from openai import OpenAI

from tests.functions.gateway.media import data_url, png, text_of, wav


def _user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


def test_a_text_is_answered_with_usage(openai: OpenAI) -> None:
    completion = openai.chat.completions.create(
        model="chat",
        messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": "good morning"}],
    )
    assert completion.object == "chat.completion"
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].message.content == "good morning"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (4, 2)
    assert completion.usage.total_tokens == 6
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 1


def test_a_streamed_answer_comes_word_by_word(openai: OpenAI) -> None:
    with openai.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "one two three"}],
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert [chunk.choices[0].delta.content for chunk in chunks[1:4]] == ["one", " two", " three"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_has_no_usage_when_it_is_not_asked_for(openai: OpenAI) -> None:
    with openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
    ) as stream:
        assert all(chunk.usage is None and chunk.choices for chunk in stream)


def test_a_stream_ends_with_done(http: httpx.Client) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    response = http.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("data: [DONE]\n\n")


def test_images_and_clips_reach_the_functions_by_reference(openai: OpenAI) -> None:
    image, clip = png(), wav()
    completion = openai.chat.completions.create(
        model="chat",
        messages=_user(
            {"type": "text", "text": "what are these"},
            {"type": "image_url", "image_url": {"url": data_url(image, "image/png"), "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": text_of(clip), "format": "wav"}},
        ),
    )
    said = completion.choices[0].message.content
    assert said == f"what are these [0: image/png, {len(image)} bytes] [1: audio/wav, {len(clip)} bytes]"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.to_dict()["image_tokens"] == 1
    extension: Any = completion.to_dict()["omnibus"]
    assert [transcript["text"] for transcript in extension["transcripts"]] == ["loud"]


def test_what_the_content_is_decides_and_not_what_the_sender_says(openai: OpenAI) -> None:
    with pytest.raises(openai_package.APIStatusError) as caught:
        openai.chat.completions.create(
            model="chat",
            messages=_user({"type": "image_url", "image_url": {"url": data_url(wav(), "image/png")}}),
        )
    assert caught.value.status_code == 415
    assert caught.value.code == "media_unsupported"


def test_a_spoken_answer_comes_with_its_transcript(openai: OpenAI) -> None:
    completion = openai.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "speak up"}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
    )
    audio = completion.choices[0].message.audio
    assert audio is not None
    assert audio.transcript == "speak up"
    assert audio.expires_at > completion.created
    assert _wav_seconds(base64.b64decode(audio.data)) == pytest.approx(0.08)


def test_a_streamed_answer_is_spoken_at_its_end(openai: OpenAI) -> None:
    with openai.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "a rather long sentence " * 40}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
        stream=True,
    ) as stream:
        deltas = [choice.delta.to_dict() for chunk in stream for choice in chunk.choices]
    kinds = ["audio" if "audio" in delta else "text" for delta in deltas]
    assert "text" not in kinds[kinds.index("audio") : -1]
    audio: list[Any] = [delta["audio"] for delta in deltas if "audio" in delta]
    pieces = [piece["data"] for piece in audio if "data" in piece]
    assert len(pieces) > 1
    assert _wav_seconds(b"".join(base64.b64decode(piece) for piece in pieces)) == pytest.approx(9.19, abs=0.01)
    assert next(piece["transcript"] for piece in audio if "transcript" in piece).startswith("a rather long")
    assert audio[-1].keys() == {"id", "expires_at"}


def test_max_tokens_ends_the_answer_with_length(openai: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "one two three"}]
    for limit in ({"max_tokens": 2}, {"max_completion_tokens": 2}, {"max_tokens": 9, "max_completion_tokens": 2}):
        completion = openai.chat.completions.create(model="chat", messages=messages, **limit)  # type: ignore[call-overload]
        assert completion.choices[0].message.content == "one two"
        assert completion.choices[0].finish_reason == "length"


def test_any_script_and_an_empty_prompt_are_answered(openai: OpenAI) -> None:
    for text in ("日本語 العربية हिन्दी 🐈", "a\u0000b \ud7ff\U0010ffff", ""):
        completion = openai.chat.completions.create(model="chat", messages=[{"role": "user", "content": text}])
        assert completion.choices[0].message.content == text


def test_an_unknown_model_is_404(openai: OpenAI) -> None:
    with pytest.raises(openai_package.NotFoundError, match="gpt-9") as caught:
        openai.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2, "modalities": ["text", "audio"]}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": _user({"type": "text"})}, "messages.0.content.0.text"),
        ({"messages": _user({"type": "file", "file": {}})}, "messages.0.content.0"),
        (
            {"messages": _user({"type": "image_url", "image_url": {"url": "ftp://x/y"}})},
            "messages.0.content.0.image_url.url",
        ),
        (
            {"messages": _user({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}})},
            "messages.0.content.0.image_url.url",
        ),
        (
            {"messages": _user({"type": "input_audio", "input_audio": {"data": "a", "format": "wav"}})},
            "messages.0.content.0.input_audio.data",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"modalities": ["text", "smell"]}, "modalities"),
        ({"modalities": ["audio"], "audio": {"voice": "x", "format": "midi"}}, "audio.format"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_a_field_that_is_wrong_or_not_supported_is_named(openai: OpenAI, fields: dict[str, Any], param: str) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
    with pytest.raises(openai_package.BadRequestError) as caught:
        openai.post("/chat/completions", body=body, cast_to=object)
    assert caught.value.code == "invalid_input"
    assert caught.value.param == param
    assert caught.value.request_id


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 3},
        {"top_p": 7},
        {"max_tokens": 0},
        {"max_completion_tokens": 0},
        {"response_format": {"type": "regex", "regex": "a" * 65537}},
        {"stop": ["x"] * 99},
        {"stop": ""},
        {"stop": "x" * 1025},
        {"n": 99},
        {"min_p": 2},
        {"logit_bias": {"word": 1}},
        {"logit_bias": {"1": 101}},
        {"logprobs": True, "top_logprobs": 21},
        {"presence_penalty": 3},
        {"repetition_penalty": 0},
    ],
)
def test_sampling_outside_its_contract_is_refused_by_the_name_that_was_sent(
    openai: OpenAI, fields: dict[str, Any]
) -> None:
    with pytest.raises(openai_package.BadRequestError, match=list(fields)[-1]) as caught:
        openai.post(
            "/chat/completions",
            body={"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields},
            cast_to=object,
        )
    assert str(caught.value.param).split(".")[0] == list(fields)[-1]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("context_length_exceeded", 400),
        ("media_unreadable", 400),
        ("limit_exceeded", 413),
        ("media_too_large", 413),
        ("media_unsupported", 415),
        ("overloaded", 429),
        ("engine_failed", 500),
        ("deadline_exceeded", 504),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_stage_that_fails_decides_the_status(openai: OpenAI, code: str, status: int, stream: bool) -> None:
    with pytest.raises(openai_package.APIStatusError) as caught:
        openai.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": f"fail {code}"}], stream=stream
        )
    assert caught.value.status_code == status
    assert caught.value.code == code
    assert caught.value.response.headers.get("retry-after") == ("7" if status == 429 else None)


def _wav_seconds(data: bytes) -> float:
    with wave.open(io.BytesIO(data)) as file:
        return float(file.getnframes() / file.getframerate())
