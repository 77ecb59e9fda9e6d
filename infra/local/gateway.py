"""The gateway process, configured from the settings."""

from __future__ import annotations

import ipaddress
import logging

from functions.gateway.config import GatewayConfig
from functions.gateway.server import serve
from infra.settings import PREFIX, Settings

log = logging.getLogger("omnibus.gateway")


async def serve_gateway(settings: Settings) -> None:
    """Serve HTTP until told to stop."""
    if settings.api_key is None and not is_loopback(settings.host):
        log.warning(
            "the gateway listens on %s without a key: whoever reaches port %d can use it; set %sAPI_KEY",
            settings.host, settings.port, PREFIX,
        )  # fmt: skip
    config = GatewayConfig(
        nats=settings.nats,
        store_url=settings.store,
        store_access_key=settings.store_access_key,
        store_secret_key=settings.store_secret_key.get_secret_value(),
        tensors=settings.tensors,
        modules=settings.modules,
        pipelines=settings.pipeline_folders,
        warm=settings.warm,
        api_key=None if settings.api_key is None else settings.api_key.get_secret_value(),
    )
    await serve(config, settings.host, settings.port, settings.grace_s)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
