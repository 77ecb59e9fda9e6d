"""One connection to NATS: settings, reconnecting, and foreign errors turned into ours."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import (
    AuthorizationError,
    ConnectionClosedError,
    ConnectionDrainingError,
    ConnectionReconnectingError,
    MaxPayloadError,
    NoRespondersError,
    NoServersError,
    OutboundBufferLimitError,
)
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from bus.errors import (
    BusError,
    BusUnavailableError,
    InvalidInputError,
    PayloadTooLargeError,
    StackConfigError,
    UnauthorizedError,
)

log = logging.getLogger("omnibus.bus")

_PATIENCE_S = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 3.0)
_NEXT_TRY_S = 0.1
_TRANSIENT = 503
_LONGEST_SUBJECT_NBYTES = 2_048
WRONG_LAST_SEQUENCE = (10071, 10164)
"""Error codes of JetStream for a write that expected another last message on its subject."""

_UNAVAILABLE = (
    ConnectionClosedError,
    ConnectionDrainingError,
    ConnectionReconnectingError,
    NoRespondersError,
    NoServersError,
    OutboundBufferLimitError,
    NatsTimeoutError,
    OSError,
    TimeoutError,
)


@dataclass(frozen=True, kw_only=True)
class NatsConfig:
    """Where the bus is and how patient to be with it.

    Attributes:
        url: Of the server, or several, separated by commas; with a user and password, if the server asks for them.
        token: Secret of the server, if it asks for one.
        credentials: Path of a `.creds` file (NATS 2.0 JWT), if the server asks for one.
        name: How this client calls itself in the server's connection list.
        connect_timeout_s: How long the first connection may take.
        publish_timeout_s: How long a publish may stay unconfirmed; it is sent again within that time.
        reconnect_wait_s: Between two tries to connect again; there is no limit to their number.
        ack_wait_s: After this long without a sign of life from its worker a message is delivered elsewhere.
        replicas: Copies of every stream and bucket in the cluster.
    """

    url: str = field(default="nats://127.0.0.1:4222", repr=False)
    token: str | None = field(default=None, repr=False)
    credentials: str | None = None
    name: str = "omnibus"
    connect_timeout_s: float = 10.0
    publish_timeout_s: float = 10.0
    reconnect_wait_s: float = 0.1
    ack_wait_s: float = 5.0
    replicas: int = 1

    @property
    def servers(self) -> str:
        """Where the bus is, for people: without the user and password that a URL may have."""
        return ",".join(re.sub(r"//[^/]*@", "//", url.strip()) for url in self.url.split(","))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn errors of the driver into ours, with `what` was being done.

    Raises:
        BusUnavailableError: (retryable) no connection or no answer.
        PayloadTooLargeError: The server does not take messages of that size.
        BusError: Anything else the server refused.
    """
    try:
        yield
    except AuthorizationError as error:
        raise UnauthorizedError(f"{what}: the NATS server refused our credentials; check the token") from error
    except MaxPayloadError as error:
        raise PayloadTooLargeError(f"{what}: larger than the NATS server's max_payload") from error
    except _UNAVAILABLE as error:
        raise BusUnavailableError(f"{what}: {type(error).__name__}: {error}") from error
    except NatsError as error:
        raise BusError(f"{what}: {error}") from error


def refused(what: str, failure: Mapping[str, Any]) -> BusError:
    """The error in an answer of JetStream; a 503 (no quorum, no room, starting) may pass.

    Source: NATS server, `server/errors.json`.
    """
    kind = BusUnavailableError if failure.get("code") == _TRANSIENT else BusError
    return kind(f"{what}: {failure.get('description', failure)}", err_code=failure.get("err_code"))


class _Told:
    """What the driver tells while it connects and later.

    Attributes:
        refused: Done when the server refuses our credentials.
    """

    def __init__(self, servers: str) -> None:
        self.refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._servers = servers
        self._last = ""

    async def error(self, error: Exception) -> None:
        if "authorization violation" in str(error).lower() and not self.refused.done():
            self.refused.set_result(None)
        text = f"{type(error).__name__}: {error}"
        # A server that is down answers ten tries a second with the same words.
        log.log(logging.DEBUG if text == self._last else logging.WARNING, "nats: %s", text)
        self._last = text

    async def disconnect(self) -> None:
        log.info("nats: disconnected from %s", self._servers)


async def connect(config: NatsConfig, on_reconnect: Callable[[], Awaitable[None]]) -> Client:
    """Open a connection that heals itself.

    Args:
        config: Where and how.
        on_reconnect: Called after every new connection but the first.

    Raises:
        BusUnavailableError: (retryable) nothing answered within `connect_timeout_s`.
        StackConfigError: The credentials are not there.
        UnauthorizedError: The server refused our credentials.
    """
    if config.credentials is not None and not os.path.isfile(config.credentials):  # noqa: ASYNC240 - once
        raise StackConfigError(f"no NATS credentials at {config.credentials}; name a .creds file that is there")
    client, told = Client(), _Told(config.servers)
    opening = asyncio.get_running_loop().create_task(client.connect(**_options(config, told, on_reconnect)))
    waiting: set[asyncio.Future[None]] = {opening, told.refused}
    await asyncio.wait(waiting, timeout=config.connect_timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        return client
    failed = opening.done()
    opening.cancel()
    await asyncio.wait([opening])
    if failed:  # before it tried any server; a client that never tried cannot be closed
        with translated(f"connecting to {config.servers}"):
            opening.result()
    await client.close()
    if told.refused.done():
        raise UnauthorizedError(f"{config.servers} refused our credentials; check the token", url=config.servers)
    raise BusUnavailableError(
        f"no NATS server answered at {config.servers} within {config.connect_timeout_s:g} s; is it running there?",
        url=config.servers,
    )


def _options(config: NatsConfig, told: _Told, on_reconnect: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    return {
        "servers": config.url.split(","),
        "name": config.name,
        "token": config.token,
        "user_credentials": config.credentials,
        "connect_timeout": 2,
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": config.reconnect_wait_s,
        "ping_interval": 20,
        "max_outstanding_pings": 2,
        "error_cb": told.error,
        "disconnected_cb": told.disconnect,
        "reconnected_cb": on_reconnect,
    }


def checked(subject: str) -> str:
    """The subject itself, when a server takes it: it closes the connection of who sends it a longer line.

    Raises:
        InvalidInputError: It is too long, because of a name in it.

    Source: NATS documentation, server configuration, `max_control_line`, 4,096 bytes unless it is set.
    """
    if (nbytes := len(subject.encode(errors="replace"))) > _LONGEST_SUBJECT_NBYTES:
        raise InvalidInputError(
            f"a subject of {nbytes} bytes, {subject[:40]}…, is over the {_LONGEST_SUBJECT_NBYTES} that the bus takes; "
            "use shorter names"
        )
    return subject


async def ask(client: Client, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> Msg:
    """A request that survives a restart of the server: it is sent again until it is answered.

    Only for requests that may be done twice: reads, idempotent set-up, and compare-and-set, whose second
    try meets its own first one as a conflict.

    Raises:
        InvalidInputError: The subject is too long.
        BusUnavailableError: (retryable) not answered within about ten seconds.
    """
    checked(subject)
    error: Exception | None = None
    for patience_s in _PATIENCE_S:
        try:
            return await client.request(subject, data, timeout=patience_s, headers=dict(headers) if headers else None)
        except (NoRespondersError, NatsTimeoutError, ConnectionReconnectingError, OutboundBufferLimitError) as failure:
            error = failure
            if not isinstance(failure, NatsTimeoutError):
                await asyncio.sleep(_NEXT_TRY_S)
        except (ConnectionClosedError, ConnectionDrainingError, NatsError) as failure:
            with translated(f"asking {subject}"):
                raise failure
    raise BusUnavailableError(f"{subject} was not answered: {type(error).__name__}") from error


__all__ = ["WRONG_LAST_SEQUENCE", "Client", "NatsConfig", "ask", "connect", "refused", "translated"]
