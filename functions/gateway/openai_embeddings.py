"""`/v1/embeddings`."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from bus.contracts import TensorRef
from bus.errors import InvalidInputError
from bus.ports import Array
from functions.gateway import requests
from functions.gateway.model_names import models_of
from functions.gateway.services import services_of

router = APIRouter(tags=["openai"])

_MAX_TEXTS = 2048


class EmbeddingsBody(BaseModel):
    """An embeddings request.

    Source: OpenAI API reference, Create embeddings.
    """

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


@router.post("/v1/embeddings")
async def create_embeddings(body: EmbeddingsBody, request: Request) -> Response:
    """Texts as normalised vectors, as numbers or as base64 of little-endian float32.

    Raises:
        ModelNotFoundError: No model of that name here.
        InvalidInputError: Names the field that is wrong or not supported.
    """
    model = models_of(request).check("embed", body.model)
    inputs: dict[str, Any] = {"texts": _texts(body)}
    if body.dimensions is not None and "dimensions" in services_of(request).client.pipelines.get("embed").inputs:
        inputs["dimensions"] = body.dimensions
    if requests.wants_async(request):
        return await requests.enqueue(request, "embed", inputs)
    async with requests.run(request, "embed", inputs) as running:
        outputs = await running.outputs()
        vectors = await services_of(request).tensors.get(TensorRef.model_validate(outputs["vectors"]))
    if body.dimensions not in (None, vectors.shape[1]):
        raise InvalidInputError(f"{model} has {vectors.shape[1]} dimensions, not {body.dimensions}", param="dimensions")
    write = _as_base64 if body.encoding_format == "base64" else _as_numbers
    data = [{"object": "embedding", "index": index, "embedding": write(row)} for index, row in enumerate(vectors)]
    tokens = int(outputs.get("tokens", 0))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": model, "usage": usage}
    return Response(to_json(answer), media_type="application/json")


def _texts(body: EmbeddingsBody) -> list[str]:
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 1 <= len(texts) <= _MAX_TEXTS:
        raise InvalidInputError(f"input is 1 to {_MAX_TEXTS} texts, not {len(texts)}", param="input")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"input.{index} is a {type(text).__name__}; send text, token ids of another model mean nothing here",
                param=f"input.{index}",
            )
        if not text.strip():
            raise InvalidInputError(f"input.{index} is empty; an embedding is of some text", param=f"input.{index}")
    return texts


def _as_numbers(row: Array) -> list[float]:
    return [float(value) for value in row]


def _as_base64(row: Array) -> str:
    return base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode()
