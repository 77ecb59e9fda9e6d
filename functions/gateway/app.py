"""The gateway: an ASGI app that turns HTTP requests into pipeline requests on the bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from functions.gateway import (
    explanations,
    health,
    jobs,
    openai_audio,
    openai_chat,
    openai_embeddings,
    openai_models,
    openai_speech,
    pipelines,
    scaling,
)
from functions.gateway.config import GatewayConfig
from functions.gateway.docs import describe_routes, serve_docs
from functions.gateway.errors import install_error_handlers
from functions.gateway.front import Front
from functions.gateway.installed_models import InstalledModels
from functions.gateway.model_names import ModelNames
from functions.gateway.services import OpenServices, open_services

_DESCRIPTION = """Multimodal inference as serverless functions on an event bus.

OpenAI's API, and any pipeline by name: `POST /v1/pipelines/{name}` with a JSON object of inputs, or a raw body.
`Prefer: respond-async` answers 202 with a `Location` to ask. Errors have OpenAI's shape; `x-request-id` finds
the trace at `/v1/requests/{id}/trace`."""

_PARTS = (
    openai_chat, openai_audio, openai_speech, openai_embeddings, openai_models, jobs, explanations, health,
    scaling,
)  # fmt: skip


class Gateway(FastAPI):
    """The web framework behind the front door, and the benchmarked route beside it.

    The framework's own chain (tracing, error pages, exit stacks, routing) takes a tenth of a request through a
    pipeline of no-ops, so `POST /v1/pipelines/{name}` goes from the door straight to its handler.
    """

    def __init__(self, config: GatewayConfig, **settings: Any) -> None:
        """An app whose every request passes the front door."""
        super().__init__(**settings)
        self.state.config = config
        self._front = Front(self._inside, config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the start and stop of the app."""
        await self._front(scope, receive, send)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = pipelines.name_in(scope)
        if name is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        scope["path_params"] = {"name": name}
        response = await pipelines.run_pipeline(Request(scope, receive))
        await response(scope, receive, send)


def create_app(config: GatewayConfig, open_services: OpenServices = open_services) -> Gateway:
    """The app; it connects when it is started.

    Args:
        config: Settings.
        open_services: Opens what the handlers stand on; another one embeds the gateway, on the in-memory bus say.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(config) as services, InstalledModels(await services.bus.bucket("models")) as installed:
            app.state.services = services
            app.state.models = ModelNames(services.client.pipelines, services.functions, installed)
            app.state.started = int(time.time())
            yield

    app = Gateway(
        config,
        title="Omnibus",
        version=version("omnibus-inference"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    serve_docs(app)
    install_error_handlers(app)
    app.router.routes.extend(pipelines.ROUTES)
    for part in _PARTS:
        app.include_router(part.router)
    describe_routes(app, pipelines.ROUTES)
    return app
