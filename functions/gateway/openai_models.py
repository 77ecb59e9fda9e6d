"""`/v1/models`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from functions.gateway.model_names import models_of

router = APIRouter(tags=["openai"])


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """The models that the functions of this deployment serve."""
    started = request.app.state.started
    return {"object": "list", "data": [_model(name, started) for name in models_of(request)]}


@router.get("/v1/models/{name:path}")
async def read_model(name: str, request: Request) -> dict[str, Any]:
    """One model, by id or alias.

    Raises:
        ModelNotFoundError: No such model.
    """
    return _model(models_of(request).find(name).id, request.app.state.started)


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "omnibus"}
