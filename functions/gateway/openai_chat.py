"""`/v1/chat/completions`."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from bus.contracts import TokenChunk
from bus.errors import OmnibusError
from bus.ports import ObjectStore
from bus.store.media import load_media
from functions.gateway import requests
from functions.gateway.chat_parts import ChatMedia
from functions.gateway.chat_route import route_of
from functions.gateway.errors import error_body, request_id_of
from functions.gateway.event_stream import DONE, EventStream, event
from functions.gateway.model_names import models_of
from functions.gateway.openai_chat_body import ChatBody, chat_inputs
from functions.gateway.openai_chat_choices import ChoiceDeltas, Delta, choices_of, logprobs_shape, token_shape
from functions.gateway.services import config_of, services_of
from functions.running import Running
from functions.stages.assemble import Answer
from functions.stages.choices import Choice

router = APIRouter(tags=["openai"])

_AUDIO_KEPT_S = 24 * 3600
_AUDIO_PIECE_LENGTH = 64 * 1024


@router.post("/v1/chat/completions")
async def create_chat_completion(body: ChatBody, request: Request) -> Response:
    """Answer a chat with text, images, audio and video in it; streamed when asked, spoken when asked.

    Raises:
        ModelNotFoundError: No model of that name here.
        ModelUnsupportedError: A model that does not chat.
        InvalidInputError: Names the field that is wrong or not supported.
    """
    route = route_of(models_of(request).choose("chat", body.model), body)
    media = ChatMedia()
    services = services_of(request)
    taken = services.client.pipelines.get(route.pipeline).inputs
    inputs = await chat_inputs(body, services.store, media) | route.inputs(media, taken)
    if requests.wants_async(request):
        return await requests.enqueue(request, route.pipeline, inputs)
    completion = _Completion(request, route.model.id, media)
    with media.named():
        if body.stream:
            return await _stream(request, route.pipeline, inputs, completion, body)
        async with requests.run(request, route.pipeline, inputs) as running:
            answer = Answer.model_validate((await running.outputs())["answer"])
    return Response(to_json(await completion.whole(answer)), media_type="application/json")


async def _stream(
    request: Request, pipeline: str, inputs: dict[str, Any], completion: _Completion, body: ChatBody
) -> Response:
    """Wait for the first token, so that a request which fails before it gets a status, then stream."""
    async with AsyncExitStack() as stack:
        async with requests.while_connected(request):
            running = await stack.enter_async_context(requests.submit(request, pipeline, inputs))
            chunks = running.chunks()
            first = await anext(chunks, None)
            if first is None:
                await running.outputs()
        events = _events(completion, running, first, chunks, answers=body.n or 1, with_usage=body.wants_usage)
        return EventStream(events, stack.pop_all())


async def _events(
    completion: _Completion,
    running: Running,
    first: TokenChunk | None,
    chunks: AsyncIterator[TokenChunk],
    *,
    answers: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    deltas = ChoiceDeltas()
    try:
        for index in range(answers):
            yield completion.piece({"role": "assistant", "content": ""}, with_usage, index)
        async for chunk in _with_first(first, chunks):
            delta = deltas.of(chunk)
            if delta is not None:
                yield completion.text(delta, with_usage)
        with completion.media.named():
            answer = Answer.model_validate((await running.outputs())["answer"])
        for delta in deltas.rest(answer):
            yield completion.text(delta, with_usage)
        async for piece in completion.audio_pieces(answer):
            yield completion.piece({"audio": piece}, with_usage)
        for last in completion.last(answer, with_usage):
            yield last
        if with_usage:
            yield completion.usage(answer)
    except OmnibusError as error:
        yield event(error_body(error, running.id))
    yield DONE


async def _with_first(first: TokenChunk | None, chunks: AsyncIterator[TokenChunk]) -> AsyncIterator[TokenChunk]:
    if first is not None:
        yield first
    async for chunk in chunks:
        yield chunk


class _Completion:
    """Writes one answer in OpenAI's shapes."""

    def __init__(self, request: Request, model: str, media: ChatMedia) -> None:
        self.media = media
        self._store: ObjectStore = services_of(request).store
        self._max_nbytes = config_of(request).max_body_nbytes
        self._id = f"chatcmpl-{request_id_of(request)}"
        self._audio_id = f"audio_{request_id_of(request)}"
        self._created = int(time.time())
        self._model = model

    async def whole(self, answer: Answer) -> dict[str, Any]:
        """The answer at once."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.speech is not None:
            message["audio"] = {
                "id": self._audio_id,
                "data": await self._audio(answer),
                "transcript": answer.text,
                "expires_at": self._created + _AUDIO_KEPT_S,
            }
        first, *others = choices_of(answer)
        choices = [_choice(0, message, first)]
        for index, other in enumerate(others, start=1):
            said = {"role": "assistant", "content": other.text, "refusal": None}
            choices.append(_choice(index, said, other))
        return {
            **self._head("chat.completion"),
            "choices": choices,
            "usage": _usage(answer),
            "omnibus": self._extension(answer),
        }

    def piece(self, delta: dict[str, Any], with_usage: bool, index: int = 0) -> bytes:
        """A chunk of a streamed answer."""
        return self._chunk(_delta(index, delta), {"usage": None} if with_usage else {})

    def text(self, delta: Delta, with_usage: bool) -> bytes:
        """A chunk with more text of one of the answers."""
        choice = _delta(delta.index, {"content": delta.text}, logprobs=logprobs_shape(delta.logprobs))
        return self._chunk(choice, {"usage": None} if with_usage else {})

    def last(self, answer: Answer, with_usage: bool) -> Iterator[bytes]:
        """The chunks that say why the answers ended."""
        more = {"omnibus": self._extension(answer), **({"usage": None} if with_usage else {})}
        for index, choice in enumerate(choices_of(answer)):
            yield self._chunk(_delta(index, {}, finish_reason=choice.finish_reason), more)

    def usage(self, answer: Answer) -> bytes:
        """The chunk with the token counts, which has no choices."""
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answer)})

    async def audio_pieces(self, answer: Answer) -> AsyncIterator[dict[str, Any]]:
        """The spoken answer as deltas: base64 in pieces that decode on their own, the transcript, the expiry."""
        if answer.speech is None:
            return
        data = await self._audio(answer)
        for start in range(0, len(data), _AUDIO_PIECE_LENGTH):
            yield {"id": self._audio_id, "data": data[start : start + _AUDIO_PIECE_LENGTH]}
        yield {"id": self._audio_id, "transcript": answer.text}
        yield {"id": self._audio_id, "expires_at": self._created + _AUDIO_KEPT_S}

    async def _audio(self, answer: Answer) -> str:
        assert answer.speech is not None
        return base64.b64encode(await load_media(self._store, answer.speech.audio, self._max_nbytes)).decode()

    def _extension(self, answer: Answer) -> dict[str, Any]:
        """What the media were taken for; an extension of OpenAI's shape."""
        places = self.media.places
        sources = [
            {"param": places[one.part] if one.part < len(places) else None, **one.model_dump(mode="json")}
            for one in answer.sources
        ]
        return {
            "transcripts": [transcript.model_dump() for transcript in answer.transcripts],
            "labels": [label.model_dump() for label in answer.labels],
            "sources": sources,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _chunk(self, choice: dict[str, Any], more: dict[str, Any]) -> bytes:
        return event({**self._head("chat.completion.chunk"), "choices": [choice], **more})


def _choice(index: int, message: dict[str, Any], choice: Choice) -> dict[str, Any]:
    tokens = None if choice.logprobs is None else [token_shape(token) for token in choice.logprobs]
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs_shape(tokens),
        "finish_reason": choice.finish_reason,
    }


def _delta(index: int, delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **fields}


def _compressed(answer: Answer) -> dict[str, int]:
    """Embeddings of media in the prompt, and how many they would be without compression; an extension."""
    if not any(source.spans for source in answer.sources):
        return {}
    return {
        "media_embeddings": sum(stop - start for source in answer.sources for start, stop in source.spans),
        "uncompressed_media_embeddings": sum(source.uncompressed for source in answer.sources),
    }


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            **{f"{modality}_tokens": count for modality, count in usage.by_modality.items()},
            **_compressed(answer),
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.accepted_prediction_tokens,
            "rejected_prediction_tokens": usage.rejected_prediction_tokens,
        },
    }
