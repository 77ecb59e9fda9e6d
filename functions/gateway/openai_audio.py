"""`/v1/audio/transcriptions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic_core import to_json

from bus.contracts import Modality
from bus.errors import InvalidInputError, MediaUnsupportedError
from functions.gateway import requests
from functions.gateway.inline_media import stored
from functions.gateway.model_names import models_of
from functions.gateway.services import services_of
from functions.gateway.subtitles import to_srt, to_vtt
from functions.stages.parts import SpeechSegment, TranscribeOptions, Transcript

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
    stream: Annotated[bool, Form()] = False,
) -> Response:
    """What is said in a file.

    Raises:
        ModelNotFoundError: No model of that name here.
        MediaError: A file that cannot be read, or has no sound.
    """
    models_of(request).check("transcribe", model)
    if stream:
        raise InvalidInputError("streamed transcriptions are not supported; leave stream out", param="stream")
    source = await stored(
        services_of(request).store, await file.read(), file.content_type or "", _sound_or_video(file), file.filename
    )
    if granularities and response_format != "verbose_json":
        raise InvalidInputError(
            f"timestamp_granularities needs response_format verbose_json, not {response_format}",
            param="timestamp_granularities[]",
        )
    options = TranscribeOptions(
        language=language or None,
        timestamps=response_format in _TIMED_FORMATS,
        words="word" in (granularities or ()),
        prompt=prompt,
    ).model_dump(exclude_defaults=True)
    inputs = {"media": [source.model_dump(exclude_none=True)], "options": options}
    if requests.wants_async(request):
        return await requests.enqueue(request, "transcribe", inputs)
    async with requests.run(request, "transcribe", inputs) as running:
        outputs = await running.outputs()
    found = [Transcript.model_validate(one) for key in ("transcripts", "soundtracks") for one in outputs.get(key) or ()]
    if not found:
        raise MediaUnsupportedError(f"{file.filename or 'the file'} has no sound; send speech")
    return _written(found, response_format, granularities or ["segment"])


def _sound_or_video(file: UploadFile) -> Modality | None:
    # What the sender says decides only where a container may hold either; its content decides the rest.
    return Modality.AUDIO if (file.content_type or "").startswith("audio/") else None


def _written(found: Sequence[Transcript], response_format: str, granularities: Sequence[str]) -> Response:
    text = " ".join(transcript.text for transcript in found).strip()
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
