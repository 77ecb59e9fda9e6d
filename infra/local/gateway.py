"""The gateway process, configured from the settings."""

from __future__ import annotations

from functions.gateway.config import GatewayConfig
from functions.gateway.server import serve
from infra.settings import Settings


async def serve_gateway(settings: Settings) -> None:
    """Serve HTTP until told to stop."""
    config = GatewayConfig(
        nats=settings.nats,
        store_url=settings.store,
        store_access_key=settings.store_access_key,
        store_secret_key=settings.store_secret_key.get_secret_value(),
        tensors=settings.tensors,
        modules=settings.modules,
        pipelines=settings.pipeline_folders,
        api_key=None if settings.api_key is None else settings.api_key.get_secret_value(),
    )
    await serve(config, settings.host, settings.port, settings.grace_s)
