"""The HTTP server process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import FrameType

import uvicorn

from bus.errors import GatewayError
from functions.gateway.app import create_app
from functions.gateway.config import GatewayConfig


async def serve(config: GatewayConfig, host: str, port: int, grace_s: float) -> None:
    """Serve until SIGTERM or SIGINT; open requests may go on for the grace period.

    Args:
        config: Of the gateway.
        host: Address to listen on.
        port: Port to listen on.
        grace_s: Seconds that open requests may go on after the signal.

    Raises:
        GatewayError: It did not start.
    """
    server = _Server(
        uvicorn.Config(
            create_app(config),
            host=host,
            port=port,
            http="httptools",
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(grace_s)),
        )
    )
    await server.serve()
    if not server.started:
        raise GatewayError(f"the gateway did not start on {host}:{port}; the reason is in its log above")


class _Server(uvicorn.Server):
    """Uvicorn, but that an idle server wakes up once a second, for the date in its answers, and not ten times."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # 0: the date is looked at
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._told.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._told.set)
