"""How a command reaches the running system."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bus.errors import GatewayError, StackConfigError, error_from_code
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from infra.local.folder import find_stack
from infra.settings import Settings, load_settings

if TYPE_CHECKING:
    import httpx

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
    """The bus of the stack that runs in the data folder, else the one that the settings name.

    Raises:
        StackConfigError: Neither.
    """
    stack = find_stack(settings.data)
    if stack is not None:
        return NatsConfig(url=stack.nats_url, token=stack.nats_token, name="omnibus-cli")
    if "nats_url" not in settings.model_fields_set:
        raise _no_stack(settings, "OMNIBUS_NATS_URL")
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


@contextmanager
def open_gateway(settings: Settings | None = None) -> Iterator[httpx.Client]:
    """An HTTP client of the gateway that the settings name, else of the stack that runs in the data folder.

    Raises:
        StackConfigError: Neither.
        GatewayError: It does not answer.
    """
    import httpx  # with all that it draws in, five megabytes: not for processes that serve

    settings = settings or load_settings()
    url = settings.url
    if url is None:
        stack = find_stack(settings.data)
        if stack is None:
            raise _no_stack(settings, "OMNIBUS_URL")
        url = stack.gateway_url
    headers = {}
    if settings.api_key is not None:
        headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(300.0, connect=5.0)) as gateway:
            yield gateway
    except httpx.TransportError as error:
        raise GatewayError(f"the gateway at {url} does not answer: {error}; is it running there?") from error


def _no_stack(settings: Settings, variable: str) -> StackConfigError:
    return StackConfigError(
        f"no stack runs in {settings.data}; start one with `omnibus up`, see it all with `omnibus demo`, "
        f"or name another one with {variable}"
    )


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
