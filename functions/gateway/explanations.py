"""What an answer needed: `POST /v1/requests/{id}/explanation`."""

from __future__ import annotations

import base64
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from bus.store.media import load_media
from functions.explain import Explainer
from functions.gateway import requests
from functions.gateway.services import GatewayServices, config_of, services_of
from functions.stages.explain.influence import Explanation, PartInfluence

router = APIRouter(tags=["requests"])

_MOST_PICTURE_NBYTES = 16 * 2**20


class ExplanationBody(BaseModel):
    """How finely to look."""

    model_config = ConfigDict(extra="forbid")

    parts: int = Field(default=4, ge=1, le=16, description="Cells a side of a picture; stretches of a sound or a film.")
    heat_maps: bool = Field(default=False, description="Whether to draw a picture of each piece of media, too.")


@router.post("/v1/requests/{request_id}/explanation")
async def explain(request_id: str, request: Request, body: ExplanationBody | None = None) -> Response:
    """Which media, which region or second an answer needed.

    The chat is asked again without each part of its media; how much less likely its answer is then, in nats, is what
    the part did for it. It takes as many runs of the pipeline as there are parts, in the batch lane.

    Raises:
        UnknownRequestError: No such request, no answer to it, or one without media.
    """
    services, wanted = services_of(request), body or ExplanationBody()
    explainer = Explainer(services.client, services.store, timeout_s=config_of(request).timeout_s)
    async with requests.while_connected(request):
        explanation = await explainer.explain(request_id, parts=wanted.parts, draw=wanted.heat_maps)
        shown = await _shape(services, explanation)
    return Response(to_json(shown), media_type="application/json")


async def _shape(services: GatewayServices, explanation: Explanation) -> dict[str, Any]:
    parts = [await _part_shape(services, part) for part in explanation.parts]
    return {**explanation.model_dump(mode="json"), "object": "explanation", "parts": parts}


async def _part_shape(services: GatewayServices, part: PartInfluence) -> dict[str, Any]:
    shape = part.model_dump(mode="json", exclude={"picture"})
    if part.picture is not None:
        png = await load_media(services.store, part.picture, _MOST_PICTURE_NBYTES)
        shape["heat_map"] = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return shape
