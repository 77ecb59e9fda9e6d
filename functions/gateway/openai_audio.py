"""`/v1/audio/transcriptions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic_core import to_json

from bus.contracts import Modality, TokenChunk
from bus.contracts.codec import validate
from bus.errors import InvalidInputError, MediaUnsupportedError, OmnibusError
from functions.gateway import requests
from functions.gateway.errors import error_body
from functions.gateway.event_stream import DONE, EventStream, event
from functions.gateway.inline_media import stored
from functions.gateway.model_names import models_of
from functions.gateway.services import services_of
from functions.gateway.subtitles import to_srt, to_vtt
from functions.running import Running
from functions.stages.parts import SpeechSegment, TranscribeOptions, Transcript
from runtime.text.pieces import join_pieces

router = APIRouter(tags=["openai"])

_TIMED_FORMATS = frozenset({"srt", "vtt", "verbose_json"})


@router.post("/v1/audio/transcriptions")
async def create_transcription(
    request: Request,
    file: Annotated[UploadFile, File(description="Sound in any container, or a video with sound.")],
    model: Annotated[str, Form()],
    language: Annotated[str | None, Form(description="ISO 639-1; none: it is told from the sound.")] = None,
    prompt: Annotated[str, Form(description="How names are written, or what was said before.")] = "",
    response_format: Annotated[Literal["json", "text", "srt", "verbose_json", "vtt"], Form()] = "json",
    granularities: Annotated[list[Literal["word", "segment"]] | None, Form(alias="timestamp_granularities[]")] = None,
    temperature: Annotated[float, Form(description="Of the first try; what cannot be believed is tried warmer.")] = 0.0,
    stream: Annotated[bool, Form()] = False,
) -> Response:
    """What is said in a file.

    Raises:
        ModelNotFoundError: No model of that name here.
        MediaError: A file that cannot be read, or has no sound.
    """
    models_of(request).check("transcribe", model)
    _check(response_format, granularities or (), stream)
    fields = {
        "language": language or None,
        "timestamps": response_format in _TIMED_FORMATS,
        "words": "word" in (granularities or ()),
        "prompt": prompt,
        "temperature": temperature,
        "stream": stream,
    }
    options = validate(TranscribeOptions, fields).model_dump(exclude_defaults=True)
    source = await stored(
        services_of(request).store, await file.read(), file.content_type or "", _sound_or_video(file), file.filename
    )
    inputs = {"media": [source.model_dump(exclude_none=True)], "options": options}
    if requests.wants_async(request):
        return await requests.enqueue(request, "transcribe", inputs)
    if stream:
        return await _streamed(request, inputs, file.filename)
    async with requests.run(request, "transcribe", inputs) as running:
        found = _found(await running.outputs(), file.filename)
    return _written(found, response_format, granularities or ["segment"])


def _check(response_format: str, granularities: Sequence[str], stream: bool) -> None:
    if stream and response_format != "json":
        raise InvalidInputError(f"a stream has response_format json, not {response_format}", param="response_format")
    if granularities and response_format != "verbose_json":
        raise InvalidInputError(
            f"timestamp_granularities needs response_format verbose_json, not {response_format}",
            param="timestamp_granularities[]",
        )


async def _streamed(request: Request, inputs: dict[str, Any], name: str | None) -> Response:
    """OpenAI's events, once there is the first one; until then an error is an error of its own."""
    async with AsyncExitStack() as stack:
        async with requests.while_connected(request):
            running = await stack.enter_async_context(requests.submit(request, "transcribe", inputs))
            chunks = running.chunks()
            first = await anext(chunks, None)
            if first is None:
                _found(await running.outputs(), name)
        return EventStream(_events(first, chunks, running, name), stack.pop_all())


async def _events(
    first: TokenChunk | None, chunks: AsyncIterator[TokenChunk], running: Running, name: str | None
) -> AsyncIterator[bytes]:
    sent = ""
    try:
        chunk = first
        while chunk is not None:
            if chunk.text and chunk.offset == len(sent):  # behind a gap, the end tells it all
                sent += chunk.text
                yield event({"type": "transcript.text.delta", "delta": chunk.text})
            chunk = await anext(chunks, None)
        found = _found(await running.outputs(), name)
        text = _text(found)
        # What was missed, or all of a transcript that was known already; what was told cannot be taken back.
        if text.startswith(sent) and (rest := text[len(sent) :]):
            yield event({"type": "transcript.text.delta", "delta": rest})
        seconds = sum(transcript.seconds for transcript in found)
        yield event({"type": "transcript.text.done", "text": text, "usage": {"type": "duration", "seconds": seconds}})
    except OmnibusError as error:
        yield event(error_body(error, running.id))
    yield DONE


def _found(outputs: dict[str, Any], name: str | None) -> list[Transcript]:
    """The transcripts of a result.

    Raises:
        MediaUnsupportedError: There was nothing to hear.
    """
    found = [Transcript.model_validate(one) for key in ("transcripts", "soundtracks") for one in outputs.get(key) or ()]
    if not found:
        raise MediaUnsupportedError(f"{name or 'the file'} has no sound; send speech")
    return found


def _text(found: Sequence[Transcript]) -> str:
    return join_pieces(transcript.text for transcript in found)


def _sound_or_video(file: UploadFile) -> Modality | None:
    # What the sender says decides only where a container may hold either; its content decides the rest.
    return Modality.AUDIO if (file.content_type or "").startswith("audio/") else None


def _written(found: Sequence[Transcript], response_format: str, granularities: Sequence[str]) -> Response:
    text = _text(found)
    seconds = sum(transcript.seconds for transcript in found)
    segments = [segment for transcript in found for segment in _segments(transcript)]
    if response_format == "text":
        return Response(text + "\n", media_type="text/plain")
    if response_format == "srt":
        return Response(to_srt(segments), media_type="application/x-subrip")
    if response_format == "vtt":
        return Response(to_vtt(segments), media_type="text/vtt")
    body: dict[str, Any] = {"text": text, "usage": {"type": "duration", "seconds": seconds}}
    if response_format == "verbose_json":
        body |= {"task": "transcribe", "language": found[0].language, "duration": seconds}
        if "segment" in granularities:
            body["segments"] = [
                {"id": index, "start": segment.start_s, "end": segment.end_s, "text": segment.text}
                for index, segment in enumerate(segments)
            ]
        if "word" in granularities:
            words = [word for transcript in found for word in transcript.words]
            body["words"] = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]
    return Response(to_json(body), media_type="application/json")


def _segments(transcript: Transcript) -> Sequence[SpeechSegment]:
    if transcript.segments or not transcript.text:
        return transcript.segments
    return (SpeechSegment(start_s=0.0, end_s=transcript.seconds, text=transcript.text),)
