"""The body of a chat request: OpenAI's shape in, the pipeline's inputs out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bus.contracts import MediaSource, Modality
from bus.contracts.codec import validate
from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from functions.gateway.inline_media import media_from_base64, media_from_url
from functions.gateway.openai_voices import voice_of
from functions.stages.parts import ContentPart, Message, SamplingOptions, SpeechOptions

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "opus": "audio/ogg"}
_AUDIO_FORMATS = {"wav": "wav", "mp3": "mp3", "flac": "flac", "opus": "opus", "pcm16": "pcm", "pcm": "pcm"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# Fields that the body and the sampling options share under one name.
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "n", "logit_bias",
    "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


class _Body(BaseModel):
    # Clients send fields that are newer than this code; those that change what an answer means are refused below.
    model_config = ConfigDict(extra="allow")


class MediaUrl(_Body):
    """Media by `data:`, `http:` or `https:` URL."""

    url: str


class InputAudio(_Body):
    """A clip inside the body."""

    data: str = Field(description="Base64.")
    format: str = Field(default="wav", description="Such as wav or mp3.")


class ChatPart(_Body):
    """A piece of a message: `text`, `image_url`, `input_audio` or `video_url`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: MediaUrl | str | None = None
    input_audio: InputAudio | None = None
    video_url: MediaUrl | str | None = None


class ChatMessage(_Body):
    """One turn."""

    role: str = Field(description="system, developer, user or assistant.")
    content: str | list[ChatPart] | None = None


class AudioOutput(_Body):
    """How the answer is spoken."""

    voice: str | dict[str, Any] = "alloy"
    format: str = Field(default="wav", description="wav, mp3, flac, opus or pcm16.")


class StreamOptions(_Body):
    """What a stream carries besides the answer."""

    include_usage: bool = False


class JsonSchema(_Body):
    """A JSON schema; it is followed strictly, whatever `strict` says."""

    definition: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(_Body):
    """What the answer looks like: `text`, `json_object`, `json_schema` or, an extension, `regex`."""

    type: str
    json_schema: JsonSchema | None = None
    regex: str | None = None


class Prediction(_Body):
    """Text that the answer is expected to repeat, in large parts."""

    content: str | list[ChatPart]

    @property
    def text(self) -> str:
        """All of it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text or "" for part in self.content]
        return "".join(parts)


class ChatBody(_Body):
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


async def chat_inputs(body: ChatBody, store: ObjectStore) -> dict[str, Any]:
    """The inputs of the `chat` pipeline; media in the body are stored and become references.

    Raises:
        InvalidInputError: Names the field that is wrong or not supported.
    """
    _check_supported(body)
    media: list[MediaSource] = []
    messages = [
        await _message(message, f"messages.{index}", media, store) for index, message in enumerate(body.messages)
    ]
    inputs: dict[str, Any] = {
        "messages": [message.model_dump(exclude_none=True) for message in messages],
        "sampling": _sampling(body).model_dump(),
    }
    if media:
        inputs["media"] = [source.model_dump(exclude_none=True) for source in media]
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


async def _message(message: ChatMessage, where: str, media: list[MediaSource], store: ObjectStore) -> Message:
    if message.role not in _ROLES:
        raise InvalidInputError(
            f"{where}.role is one of {', '.join(_ROLES)}, not {message.role!r}", param=f"{where}.role"
        )
    content: Sequence[ChatPart]
    if isinstance(message.content, str) or message.content is None:
        content = [ChatPart(type="text", text=message.content or "")]
    else:
        content = message.content
    parts = [await _part(part, f"{where}.content.{index}", media, store) for index, part in enumerate(content)]
    return Message(role=_ROLES[message.role], content=tuple(parts))


async def _part(part: ChatPart, where: str, media: list[MediaSource], store: ObjectStore) -> ContentPart:
    if part.type in ("text", "input_text", "refusal"):
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise InvalidInputError(f"{where}.text is missing", param=f"{where}.text")
        return ContentPart(text=text)
    if part.type == "input_audio" and part.input_audio is not None:
        source = await _clip(part.input_audio, f"{where}.input_audio", store)
    elif part.type == "image_url" and part.image_url is not None:
        source = await media_from_url(store, _url(part.image_url), Modality.IMAGE, f"{where}.image_url.url")
    elif part.type == "video_url" and part.video_url is not None:
        source = await media_from_url(store, _url(part.video_url), Modality.VIDEO, f"{where}.video_url.url")
    else:
        raise InvalidInputError(
            f"{where} is a part of type {part.type!r} without what the type says; "
            "text, image_url, input_audio and video_url are taken",
            param=where,
        )
    media.append(source)
    return ContentPart(part=len(media) - 1)


async def _clip(clip: InputAudio, where: str, store: ObjectStore) -> MediaSource:
    # The format is a hint: `media.fetch` tells it from the content.
    media_type = _AUDIO_TYPES.get(clip.format.lower(), "application/octet-stream")
    return await media_from_base64(store, clip.data, media_type, Modality.AUDIO, f"{where}.data")


def _url(value: MediaUrl | str) -> str:
    return value if isinstance(value, str) else value.url


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
