"""The gateway: an ASGI app that turns HTTP requests into pipeline requests on the bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.routing import BaseRoute

from functions.gateway import health, jobs, openai_audio, openai_chat, openai_embeddings, openai_models, pipelines
from functions.gateway.config import GatewayConfig
from functions.gateway.docs import describe_routes
from functions.gateway.errors import install_error_handlers
from functions.gateway.front import Front
from functions.gateway.model_names import ModelNames
from functions.gateway.services import OpenServices, open_services

_DESCRIPTION = """Multimodal inference as serverless functions on an event bus.

OpenAI's API, and any pipeline by name: `POST /v1/pipelines/{name}` with a JSON object of inputs, or a raw body.
`Prefer: respond-async` answers 202 with a `Location` to ask. Errors have OpenAI's shape; `x-request-id` finds
the trace at `/v1/requests/{id}/trace`."""


def create_app(config: GatewayConfig, open_services: OpenServices = open_services) -> FastAPI:
    """The app; it connects when it is started.

    Args:
        config: Settings.
        open_services: Opens what the handlers stand on; another one embeds the gateway, on the in-memory bus say.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(config) as services:
            app.state.services = services
            app.state.models = ModelNames(services.client.pipelines, services.functions)
            app.state.started = int(time.time())
            yield

    app = FastAPI(title="Omnibus", version=version("omnibus-inference"), description=_DESCRIPTION, lifespan=lifespan)
    app.state.config = config
    app.add_middleware(Front, config=config)
    install_error_handlers(app)
    # First, because routes are tried in their order.
    fast: list[BaseRoute] = list(pipelines.ROUTES)
    app.router.routes[:0] = fast
    for part in (openai_chat, openai_audio, openai_embeddings, openai_models, jobs, health):
        app.include_router(part.router)
    describe_routes(app, pipelines.ROUTES)
    return app
