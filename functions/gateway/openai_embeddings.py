"""`/v1/embeddings`."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from bus.contracts import TensorRef
from bus.errors import InvalidInputError
from bus.ports import Array
from functions.gateway import requests
from functions.gateway.embedding_inputs import Asked, asked, media_of
from functions.gateway.model_names import models_of
from functions.gateway.services import services_of

router = APIRouter(tags=["openai"])


class EmbeddingsBody(BaseModel):
    """An embeddings request.

    Source: OpenAI API reference, Create embeddings.
    """

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = Field(default=None, strict=True, ge=1)


@router.post("/v1/embeddings")
async def create_embeddings(body: EmbeddingsBody, request: Request) -> Response:
    """Texts as normalised vectors, as numbers or as base64 of little-endian float32.

    The model `label-space` takes pictures, too, as parts of the chat's shape, and says that it is a composition.

    Raises:
        ModelNotFoundError: No model of that name here.
        InvalidInputError: Names the field that is wrong or not supported.
    """
    wanted = asked(body.input)
    door = "label-space" if models_of(request).takes("label-space", body.model) else "embed"
    model = models_of(request).check(door, body.model)
    inputs = await _inputs(request, body, wanted, door)
    if requests.wants_async(request):
        if body.dimensions is not None and "dimensions" not in inputs:  # nobody is here to look at the answer
            raise InvalidInputError(f"{model} has vectors of one length; leave dimensions out", param="dimensions")
        return await requests.enqueue(request, door, inputs)
    async with requests.run(request, door, inputs) as running:
        outputs = await running.outputs()
        vectors = await _vectors(request, wanted, outputs, door)
    if body.dimensions not in (None, len(vectors[0])):
        raise InvalidInputError(f"{model} has {len(vectors[0])} dimensions, not {body.dimensions}", param="dimensions")
    write = _as_base64 if body.encoding_format == "base64" else _as_numbers
    data = [{"object": "embedding", "index": index, "embedding": write(row)} for index, row in enumerate(vectors)]
    tokens = int(outputs.get("tokens") or 0)
    answer = {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if outputs.get("composition"):
        answer["composition"] = outputs["composition"]
    return Response(to_json(answer), media_type="application/json")


async def _inputs(request: Request, body: EmbeddingsBody, wanted: Asked, door: str) -> dict[str, Any]:
    services = services_of(request)
    if wanted.pictures and door != "label-space":
        place = min(wanted.pictures)
        raise InvalidInputError(
            f"input.{place} is a picture; {body.model} embeds texts, label-space both", param=f"input.{place}"
        )
    inputs: dict[str, Any] = {}
    if wanted.texts:
        inputs["texts"] = list(wanted.texts.values())
    if wanted.pictures:
        media = await media_of(services.store, wanted.pictures)
        inputs["media"] = [one.model_dump(exclude_none=True) for one in media]
    if body.dimensions is not None and "dimensions" in services.client.pipelines.get(door).inputs:
        inputs["dimensions"] = body.dimensions
    return inputs


async def _vectors(request: Request, wanted: Asked, outputs: dict[str, Any], door: str) -> list[Array]:
    """The vectors of the outputs, put back into the places of what was asked."""
    tensors = services_of(request).tensors
    found: dict[int, Array] = {}
    for name, places in ((("vectors" if door == "embed" else "texts"), wanted.texts), ("images", wanted.pictures)):
        if places:
            rows = await tensors.get(TensorRef.model_validate(outputs[name]))
            found |= dict(zip(sorted(places), rows, strict=True))
    return [found[place] for place in sorted(found)]


def _as_numbers(row: Array) -> list[float]:
    return [float(value) for value in row]


def _as_base64(row: Array) -> str:
    return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()
