"""`/v1/pipelines`: any pipeline by name. The plain routes here skip the web framework's per-request models."""

from __future__ import annotations

from typing import Any

import ormsgpack
from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from bus.contracts import Contract, MediaRef, MediaSource, Modality
from bus.contracts.codec import validate
from bus.errors import InvalidInputError
from bus.ports import ObjectStore
from bus.store.media import save_media
from functions.flow.plan import END, Plan
from functions.gateway import requests
from functions.gateway.finite import finite_json
from functions.gateway.inline_media import decode_base64, media_from_url, stored
from functions.gateway.services import config_of, services_of

_RUN_PATH = "/v1/pipelines/"
_MEDIA_INPUT = "media"
_JSON_TYPES = frozenset({"", "application/json", "text/json"})
_MSGPACK_TYPES = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})


class MediaItemBody(Contract):
    """A piece of media in a body: inside it, at a URL, or stored before."""

    data: str | bytes | None = Field(default=None, description="Base64; bytes in msgpack.")
    url: str | None = Field(default=None, description="`data:`, `http:` or `https:`.")
    ref: MediaRef | None = None
    modality: Modality | None = None
    media_type: str = "application/octet-stream"
    name: str | None = None


async def run_pipeline(request: Request) -> Response:
    """`POST /v1/pipelines/{name}`: run a pipeline and wait for its outputs.

    A JSON or msgpack body is the map of inputs. Any other body is the pipeline's one input: media for a pipeline
    that takes media, text for `text/…`, else bytes, which above 64 KiB travel as a reference to the object store.

    Raises:
        UnknownPipelineError: No such pipeline.
        InvalidInputError: A body that is not the pipeline's inputs.
    """
    services = services_of(request)
    plan = services.client.pipelines.get(request.path_params["name"])
    inputs = await _inputs(request, plan)
    if requests.wants_async(request):
        return await requests.enqueue(request, plan.pipeline, inputs)
    async with requests.run(request, plan.pipeline, inputs) as running:
        outputs = await running.outputs()
    if not outputs and plan.by_name[END].inputs:
        raise InvalidInputError(
            f"pipeline {plan.pipeline!r} found nothing in its inputs to make {', '.join(plan.by_name[END].inputs)} of; "
            "send what it reads"
        )
    body = {"id": running.id, "object": "pipeline.result", "pipeline": plan.pipeline, "outputs": outputs}
    if request.headers.get("accept") in _MSGPACK_TYPES:
        return Response(ormsgpack.packb(body), media_type="application/msgpack")
    return Response(to_json(body, bytes_mode="base64"), media_type="application/json")


async def list_pipelines(request: Request) -> Response:
    """`GET /v1/pipelines`: what can be run."""
    plans = [_described(plan) for plan in services_of(request).client.pipelines]
    return Response(to_json({"object": "list", "data": plans}), media_type="application/json")


async def read_pipeline(request: Request) -> Response:
    """`GET /v1/pipelines/{name}`: one pipeline with its stages.

    Raises:
        UnknownPipelineError: No such pipeline.
    """
    plan = services_of(request).client.pipelines.get(request.path_params["name"])
    stages = [
        {"name": stage.name, "function": stage.function, "after": list(stage.upstream)}
        for stage in plan.stages
        if stage.function
    ]
    return Response(to_json({**_described(plan), "stages": stages}), media_type="application/json")


async def read_media(request: Request) -> Response:
    """`GET /v1/media/{digest}`: the bytes that a `MediaRef` of an output names.

    Raises:
        ObjectMissingError: No such media.
    """
    digest = request.path_params["digest"]
    data = await services_of(request).store.get(f"media/{digest}")
    # Never a type that a browser would run: the bytes are somebody's upload.
    headers = {"x-content-type-options": "nosniff", "etag": f'"{digest}"', "content-disposition": "attachment"}
    return Response(data, headers=headers, media_type="application/octet-stream")


ROUTES = (
    Route("/v1/pipelines/{name}", run_pipeline, methods=["POST"]),
    Route("/v1/pipelines/{name}", read_pipeline, methods=["GET"]),
    Route("/v1/pipelines", list_pipelines, methods=["GET"]),
    Route("/v1/media/{digest}", read_media, methods=["GET"]),
)
"""Every route of this module; the app takes the first one past its routing."""


def name_in(scope: Scope) -> str | None:
    """Name of the pipeline that a request wants to run; None when it wants something else."""
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(_RUN_PATH):
        return None
    name: str = scope["path"][len(_RUN_PATH) :]
    return name if name and "/" not in name else None


def _described(plan: Plan) -> dict[str, Any]:
    return {
        "id": plan.pipeline,
        "object": "pipeline",
        "description": plan.description,
        "inputs": {name: "required" if required else "optional" for name, required in plan.inputs.items()},
        "plan": plan.digest,
    }


async def _inputs(request: Request, plan: Plan) -> dict[str, Any]:
    body = await request.body()
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type in _JSON_TYPES:
        return await _with_stored_media(request, plan, _mapping(finite_json, body, "JSON"))
    if media_type in _MSGPACK_TYPES:
        return await _with_stored_media(request, plan, _mapping(ormsgpack.unpackb, body, "msgpack"))
    return await _raw(request, plan, body, media_type)


def _mapping(read: Any, body: bytes, kind: str) -> dict[str, Any]:
    try:
        inputs = read(body) if body else {}
    except ValueError as error:
        raise InvalidInputError(f"the body is not {kind}: {error}") from error
    if not isinstance(inputs, dict):
        raise InvalidInputError(f"the body is a map of inputs, not a {type(inputs).__name__}")
    return inputs


async def _with_stored_media(request: Request, plan: Plan, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, with media that are in the body stored and replaced by references."""
    media = inputs.get(_MEDIA_INPUT)
    if _MEDIA_INPUT not in plan.inputs or not isinstance(media, list):
        return inputs
    store = services_of(request).store
    items = [validate(MediaItemBody, item) if isinstance(item, dict) else item for item in media]
    sources = [
        (await _source(store, item, f"media.{index}")).model_dump(exclude_none=True)
        if isinstance(item, MediaItemBody)
        else item
        for index, item in enumerate(items)
    ]
    return {**inputs, _MEDIA_INPUT: sources}


async def _source(store: ObjectStore, item: MediaItemBody, where: str) -> MediaSource:
    if item.data is not None:
        data = item.data if isinstance(item.data, bytes) else await decode_base64(item.data, f"{where}.data")
        return await stored(store, data, item.media_type, item.modality, item.name)
    if item.url is not None and item.url[:5].lower() == "data:":
        return await media_from_url(store, item.url, item.modality, f"{where}.url")
    return validate(MediaSource, {"modality": item.modality, "ref": item.ref, "url": item.url})


async def _raw(request: Request, plan: Plan, body: bytes, media_type: str) -> dict[str, Any]:
    name = request.headers.get("x-file-name")
    if _MEDIA_INPUT in plan.inputs:
        ref = await save_media(services_of(request).store, body, media_type, name)
        return {_MEDIA_INPUT: [MediaSource(ref=ref).model_dump(exclude_none=True)]}
    required = [key for key, needed in plan.inputs.items() if needed]
    if len(required) != 1:
        raise InvalidInputError(
            f"pipeline {plan.pipeline!r} has the inputs {', '.join(plan.inputs)}; send them as a JSON object"
        )
    if media_type.startswith("text/"):
        return {required[0]: _text(body)}
    if len(body) <= config_of(request).inline_max_nbytes:
        return {required[0]: body}
    ref = await save_media(services_of(request).store, body, media_type, name)
    return {required[0]: ref.model_dump(exclude_none=True)}


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"a text body is UTF-8: {error}") from error
