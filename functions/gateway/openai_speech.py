"""`/v1/audio/speech`."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from bus.contracts import MediaRef, TokenChunk
from bus.contracts.codec import validate
from bus.errors import InvalidInputError, OmnibusError
from bus.store.media import load_media
from functions.gateway import requests
from functions.gateway.errors import error_body
from functions.gateway.event_stream import EventStream, event
from functions.gateway.model_names import models_of
from functions.gateway.openai_voices import voice_of
from functions.gateway.services import config_of, services_of
from functions.running import Running
from functions.stages.parts import Speech, SpeechOptions

router = APIRouter(tags=["openai"])

_AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "pcm": "audio/pcm",
}
_RATE_HEADER = "x-omnibus-sample-rate-hz"


class SpeechBody(BaseModel):
    """A speech request.

    Source: OpenAI API reference, Create speech.
    """

    model_config = ConfigDict(extra="allow")

    model: str
    input: str
    voice: str | dict[str, Any] = "alloy"
    response_format: Literal["mp3", "opus", "flac", "wav", "pcm", "aac"] | None = "mp3"
    speed: float | None = 1.0
    stream_format: Literal["audio", "sse"] | None = None


@router.post("/v1/audio/speech")
async def create_speech(body: SpeechBody, request: Request) -> Response:
    """A text, spoken; what is said first is sent while the rest is still made.

    A WAV file tells its length in its first bytes, so it is sent as a whole unless `stream_format` asks for a stream.

    Raises:
        ModelNotFoundError: No model of that name here.
        InvalidInputError: Names the field that is wrong or not supported.
    """
    models_of(request).check("speak", body.model)
    _check(body)
    form = body.response_format or "mp3"
    fields = {"format": form, "speed": 1.0 if body.speed is None else body.speed, **voice_of(body.voice)}
    waits = requests.wants_async(request)
    streams = not waits and (body.stream_format is not None or form != "wav")
    options = validate(SpeechOptions, {**fields, "stream": streams})
    inputs = {"text": body.input, "options": options.model_dump()}
    if waits:
        return await requests.enqueue(request, "speak", inputs)
    if streams:
        return await _streamed(request, inputs, form, as_events=body.stream_format == "sse")
    async with requests.run(request, "speak", inputs) as running:
        speech = Speech.model_validate((await running.outputs())["speech"])
        data = await load_media(services_of(request).store, speech.audio, config_of(request).max_body_nbytes)
    return Response(data, headers={_RATE_HEADER: str(speech.sample_rate_hz)}, media_type=_AUDIO_TYPES[speech.format])


def _check(body: SpeechBody) -> None:
    if not body.input.strip():
        raise InvalidInputError("input is empty; there is nothing to say", param="input")
    if body.response_format == "aac":
        raise InvalidInputError("response_format is mp3, opus, flac, wav or pcm, not aac", param="response_format")


async def _streamed(request: Request, inputs: dict[str, Any], form: str, *, as_events: bool) -> Response:
    """The answer once its first part is there; until then an error is an error of its own."""
    async with AsyncExitStack() as stack:
        async with requests.while_connected(request):
            running = await stack.enter_async_context(requests.submit(request, "speak", inputs))
            file = _Parts(request, running)
            parts = file.read()
            first = await anext(parts, b"")
        rate = {} if file.rate_hz is None else {_RATE_HEADER: str(file.rate_hz)}
        if as_events:
            return EventStream(_events(first, parts, running), stack.pop_all(), headers=rate)
        return EventStream(_joined(first, parts), stack.pop_all(), media_type=_AUDIO_TYPES[form], headers=rate)


class _Parts:
    """The parts of a file that is being made, in order and without gaps.

    Attributes:
        rate_hz: Samples a second, known once there is a part; raw samples do not tell it themselves.
    """

    def __init__(self, request: Request, running: Running) -> None:
        self._store, self._limit = services_of(request).store, config_of(request).max_body_nbytes
        self._running, self._sent = running, 0
        self.rate_hz: int | None = None

    async def read(self) -> AsyncIterator[bytes]:
        """Parts as they come; what was missed of them, and the end, out of the whole file.

        Raises:
            OmnibusError: The request failed.
        """
        async for chunk in self._running.chunks():
            if self._is_next(chunk):
                yield await self._part(chunk)
        speech = Speech.model_validate((await self._running.outputs())["speech"])
        self.rate_hz = speech.sample_rate_hz
        whole = await load_media(self._store, speech.audio, self._limit)
        if rest := whole[self._sent :]:
            yield rest

    def _is_next(self, chunk: TokenChunk) -> bool:
        # A stage that starts again tells of the same parts again.
        return "audio" in chunk.data and chunk.data.get("at") == self._sent

    async def _part(self, chunk: TokenChunk) -> bytes:
        data = await load_media(self._store, MediaRef.model_validate(chunk.data["audio"]), self._limit)
        self._sent += len(data)
        self.rate_hz = chunk.data.get("rate_hz", self.rate_hz)
        return data


async def _joined(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part


async def _events(first: bytes, parts: AsyncIterator[bytes], running: Running) -> AsyncIterator[bytes]:
    """OpenAI's events: the file in base64, part by part, and the end."""
    try:
        async for part in _joined(first, parts):
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(part).decode()})
        yield event({"type": "speech.audio.done"})
    except OmnibusError as error:
        yield event(error_body(error, running.id))
