"""How a command reaches the running system."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx

from bus.errors import StackConfigError, error_from_code
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from infra.local.folder import find_stack
from infra.settings import Settings, load_settings

R = TypeVar("R")


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run a command's coroutine on the fast event loop."""
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


def log_to_stderr(level: str) -> None:
    """Log lines with time, level and logger."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def bus_config(settings: Settings) -> NatsConfig:
    """The bus of the stack that runs in the data folder, else the one of the settings."""
    stack = find_stack(settings.data)
    if stack is not None:
        return NatsConfig(url=stack.nats_url, token=stack.nats_token, name="omnibus-cli")
    return settings.nats


@asynccontextmanager
async def open_bus() -> AsyncIterator[NatsBus]:
    """A connection to the bus.

    Raises:
        BusUnavailableError: (retryable) nothing answers.
    """
    async with NatsBus(bus_config(load_settings())) as bus:
        await bus.setup()
        yield bus


def open_gateway(settings: Settings | None = None) -> httpx.Client:
    """An HTTP client of the gateway.

    Raises:
        StackConfigError: No stack runs in the data folder.
    """
    settings = settings or load_settings()
    stack = find_stack(settings.data)
    if stack is None:
        raise StackConfigError(
            f"no stack runs in {settings.data}; start one with `omnibus up`, or see it all with `omnibus demo`"
        )
    headers = {}
    if settings.api_key is not None:
        headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
    return httpx.Client(base_url=stack.gateway_url, headers=headers, timeout=httpx.Timeout(300.0, connect=5.0))


def checked(response: httpx.Response) -> httpx.Response:
    """The response, when it is a success.

    Raises:
        OmnibusError: The error that the gateway told.
    """
    if response.is_success:
        return response
    response.read()
    try:
        error = response.json()["error"]
        code, message = str(error.get("code")), str(error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message = "gateway_failed", f"HTTP {response.status_code}: {response.text[:200]}"
    request = response.headers.get("x-request-id")
    raise error_from_code(code, f"{message} (request {request})" if request else message)
