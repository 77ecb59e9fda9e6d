"""Confirmed publishing: many in flight, each sent again until the stream has it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg

from bus.errors import BusError, BusUnavailableError, OmnibusError, OverloadedError, PayloadTooLargeError
from bus.nats.connection import WRONG_LAST_SEQUENCE, Client, NatsConfig, checked, refused, translated
from bus.subjects import is_once

_HEADER_ROOM = 256
_RETRY_S = 0.05
_STREAM_FULL = 10077
_TRANSIENT = 503


@dataclass
class _Unconfirmed:
    subject: str
    data: bytes
    headers: dict[str, str]
    confirmed: asyncio.Future[bool]


class Publisher:
    """Publishes to JetStream and waits for the stream's confirmation.

    A publish that meets a restart of the server is sent again under the same message id, so the stream
    keeps it once. One inbox serves all confirmations.
    """

    def __init__(self, client: Client, config: NatsConfig) -> None:
        self._client = client
        self._timeout_s = config.publish_timeout_s
        self._inbox = client.new_inbox()
        self._unconfirmed: dict[str, _Unconfirmed] = {}
        self._numbers = itertools.count()
        self._waiting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start to listen for confirmations."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_confirmation)

    async def publish(self, subject: str, data: bytes, message_id: str, headers: Mapping[str, str] | None) -> bool:
        """Store a message; False when the stream had this id before.

        Raises:
            InvalidInputError: The subject is too long.
            PayloadTooLargeError: Larger than the server takes.
            OverloadedError: (retryable) the stream is full.
            BusUnavailableError: (retryable) not confirmed in time.
        """
        sent_headers = {"Nats-Msg-Id": message_id, **(headers or {})}
        if is_once(subject):
            sent_headers["Nats-Expected-Last-Subject-Sequence"] = "0"
        self._check_size(checked(subject), data, sent_headers)
        number = str(next(self._numbers))
        waiting = _Unconfirmed(subject, data, sent_headers, asyncio.get_running_loop().create_future())
        self._unconfirmed[number] = waiting
        try:
            await self._first_send(number, waiting)
            async with asyncio.timeout(self._timeout_s):
                return await waiting.confirmed
        except TimeoutError as error:
            raise BusUnavailableError(
                f"publishing to {subject} was not confirmed within {self._timeout_s:g} s", subject=subject
            ) from error
        finally:
            del self._unconfirmed[number]

    async def resend(self) -> None:
        """Send everything that is unconfirmed again, after a reconnect."""
        for number, waiting in list(self._unconfirmed.items()):
            if not waiting.confirmed.done():
                await self._send(number, waiting)

    def _check_size(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        limit = self._client.max_payload
        nbytes = len(data) + _HEADER_ROOM + sum(len(key) + len(value) + 4 for key, value in headers.items())
        if nbytes > limit:
            raise PayloadTooLargeError(
                f"a message of {nbytes} bytes for {subject} is over the server's max_payload of {limit}; "
                "put large values into the object store and send a reference",
                nbytes=nbytes,
                limit=limit,
            )

    async def _first_send(self, number: str, waiting: _Unconfirmed) -> None:
        try:
            await self._send(number, waiting)
        except BusUnavailableError:
            # Without a connection the driver buffers little; whatever it does not take is sent after the reconnect.
            if self._client.is_closed:
                raise

    async def _send(self, number: str, waiting: _Unconfirmed) -> None:
        with translated(f"publishing to {waiting.subject}"):
            await self._client.publish(
                waiting.subject, waiting.data, reply=f"{self._inbox}.{number}", headers=waiting.headers
            )

    async def _on_confirmation(self, message: Msg) -> None:
        number = message.subject[len(self._inbox) + 1 :]
        waiting = self._unconfirmed.get(number)
        if waiting is None or waiting.confirmed.done():
            return
        if message.headers and message.headers.get("Status") == str(_TRANSIENT):
            self._later(number, waiting)  # no stream listens (yet): JetStream is starting
            return
        answer = json.loads(message.data)
        failure = answer.get("error")
        if failure is None:
            waiting.confirmed.set_result(not answer.get("duplicate", False))
        elif failure.get("err_code") in WRONG_LAST_SEQUENCE:
            waiting.confirmed.set_result(False)  # a log that keeps the first message of a subject has one
        elif failure.get("code") == _TRANSIENT and failure.get("err_code") != _STREAM_FULL:
            self._later(number, waiting)
        else:
            waiting.confirmed.set_exception(_refused(waiting.subject, failure))

    def _later(self, number: str, waiting: _Unconfirmed) -> None:
        async def again() -> None:
            await asyncio.sleep(_RETRY_S)
            if number not in self._unconfirmed or waiting.confirmed.done():
                return
            try:
                await self._send(number, waiting)
            except BusUnavailableError:
                return  # sent again after the reconnect
            except OmnibusError as error:
                if not waiting.confirmed.done():
                    waiting.confirmed.set_exception(error)

        task = waiting.confirmed.get_loop().create_task(again())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)


def _refused(subject: str, failure: Mapping[str, object]) -> BusError | OverloadedError:
    if failure.get("err_code") == _STREAM_FULL:
        reason = failure.get("description", failure)
        return OverloadedError(f"the stream of {subject} is full: {reason}", retry_after_s=1.0, subject=subject)
    return refused(f"publishing to {subject}", failure)
