"""The body of a chat request: OpenAI's shape in, the pipeline's inputs out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from bus.contracts.codec import validate
from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from functions.gateway.chat_parts import ChatMedia, ChatPart, Lenient, content_part
from functions.gateway.openai_voices import voice_of
from functions.stages.parts import Message, SamplingOptions, SpeechOptions

_AUDIO_FORMATS = {"wav": "wav", "mp3": "mp3", "flac": "flac", "opus": "opus", "pcm16": "pcm", "pcm": "pcm"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# Fields that the body and the sampling options share under one name.
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "n", "logit_bias",
    "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


class ChatMessage(Lenient):
    """One turn."""

    role: str = Field(description="system, developer, user or assistant.")
    content: str | list[ChatPart] | None = None


class AudioOutput(Lenient):
    """How the answer is spoken."""

    voice: str | dict[str, Any] = "alloy"
    format: str = Field(default="wav", description="wav, mp3, flac, opus or pcm16.")


class StreamOptions(Lenient):
    """What a stream carries besides the answer."""

    include_usage: bool = False


class JsonSchema(Lenient):
    """A JSON schema; it is followed strictly, whatever `strict` says."""

    definition: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(Lenient):
    """What the answer looks like: `text`, `json_object`, `json_schema` or, an extension, `regex`."""

    type: str
    json_schema: JsonSchema | None = None
    regex: str | None = None


class Prediction(Lenient):
    """Text that the answer is expected to repeat, in large parts."""

    content: str | list[ChatPart]

    @property
    def text(self) -> str:
        """All of it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text or "" for part in self.content]
        return "".join(parts)


class ChatBody(Lenient):
    """A chat completion request.

    Source: OpenAI API reference, Create chat completion.
    """

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = 1
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: int | None = Field(default=None, description="An extension.")
    min_p: float | None = Field(default=None, description="An extension.")
    repetition_penalty: float | None = Field(default=None, description="An extension.")
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None
    modalities: list[str] | None = None
    audio: AudioOutput | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


async def chat_inputs(body: ChatBody, store: ObjectStore, media: ChatMedia) -> dict[str, Any]:
    """The inputs that every pipeline of chats takes; media in the body are stored and become references.

    Args:
        body: The request.
        store: Where its media go.
        media: Where they are noted, in the order in which the messages hold them.

    Raises:
        InvalidInputError: Names the field that is wrong or not supported.
    """
    _check_supported(body)
    messages = [
        await _message(message, f"messages.{index}", media, store) for index, message in enumerate(body.messages)
    ]
    inputs: dict[str, Any] = {
        "messages": [message.model_dump(exclude_none=True) for message in messages],
        "sampling": _sampling(body).model_dump(),
        **media.inputs(),
    }
    speech = _speech(body)
    if speech is not None:
        inputs["speech"] = speech.model_dump()
    return inputs


def _check_supported(body: ChatBody) -> None:
    extra = body.model_extra or {}
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidInputError("top_logprobs is told where logprobs is true", param="top_logprobs")
    if (body.n or 1) > 1 and "audio" in (body.modalities or ()):
        raise InvalidInputError(f"n is {body.n}; one answer is spoken, ask for one or for text", param="n")
    for name in ("tools", "functions", "web_search_options"):
        if extra.get(name):
            raise InvalidInputError(f"{name} is not supported", param=name)
    unknown = set(body.modalities or ()) - {"text", "audio"}
    if unknown:
        raise InvalidInputError(f"modalities are text and audio, not {', '.join(sorted(unknown))}", param="modalities")


async def _message(message: ChatMessage, where: str, media: ChatMedia, store: ObjectStore) -> Message:
    if message.role not in _ROLES:
        raise InvalidInputError(
            f"{where}.role is one of {', '.join(_ROLES)}, not {message.role!r}", param=f"{where}.role"
        )
    content: Sequence[ChatPart]
    if isinstance(message.content, str) or message.content is None:
        content = [ChatPart(type="text", text=message.content or "")]
    else:
        content = message.content
    parts = [await content_part(part, f"{where}.content.{index}", media, store) for index, part in enumerate(content)]
    return Message(role=_ROLES[message.role], content=tuple(parts))


def _sampling(body: ChatBody) -> SamplingOptions:
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    fields = {
        "max_tokens": limit,
        "top_logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        "stop": (body.stop,) if isinstance(body.stop, str) else body.stop,
        "format": None if body.response_format is None else _format(body.response_format),
        "prediction": None if body.prediction is None else body.prediction.text,
        **{name: getattr(body, name) for name in _SAMPLING},
    }
    names = {"format": "response_format"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return validate(SamplingOptions, {name: value for name, value in fields.items() if value is not None}, names)


def _format(wanted: ResponseFormat) -> dict[str, str] | None:
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.type == "json_schema" and wanted.json_schema is not None:
        return {"type": "json_schema", "definition": json.dumps(wanted.json_schema.definition)}
    if wanted.type == "regex" and wanted.regex is not None:
        return {"type": "regex", "definition": wanted.regex}
    raise InvalidInputError(
        f"response_format is of type {wanted.type!r} without what the type says; "
        "text, json_object, json_schema and regex are taken",
        param="response_format",
    )


def _speech(body: ChatBody) -> SpeechOptions | None:
    if "audio" not in (body.modalities or ()):
        return None
    audio = body.audio or AudioOutput()
    if audio.format not in _AUDIO_FORMATS:
        raise InvalidInputError(
            f"audio.format is one of {', '.join(_AUDIO_FORMATS)}, not {audio.format!r}", param="audio.format"
        )
    return validate(SpeechOptions, {"format": _AUDIO_FORMATS[audio.format], **voice_of(audio.voice)})
