"""`/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from functions.gateway.model_names import Chosen, models_of
from functions.stages.tokens.media import is_native

router = APIRouter(tags=["openai"])


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """The models that the functions of this deployment serve."""
    started = request.app.state.started
    models = models_of(request)
    return {"object": "list", "data": [_model(models.find(name), started) for name in models]}


@router.get("/v1/models/{name:path}")
async def read_model(name: str, request: Request) -> dict[str, Any]:
    """One model, by id or alias.

    Raises:
        ModelNotFoundError: No such model.
    """
    return _model(models_of(request).find(name), request.app.state.started)


def _model(model: Chosen, created: int) -> dict[str, Any]:
    shape: dict[str, Any] = {"id": model.id, "object": "model", "created": created, "owned_by": "omnibus"}
    if model.manifest is not None:  # an extension of OpenAI's shape
        told = model.manifest
        shape["omnibus"] = {
            "version": told.version,
            "family": told.family,
            "modalities_in": told.modalities_in,
            "modalities_out": told.modalities_out,
            "native": is_native(told),
        }
    return shape
