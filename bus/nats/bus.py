"""`NatsBus`: the bus on NATS JetStream."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from bus.contracts import Lane
from bus.errors import BusError, OmnibusError
from bus.nats.connection import Client, NatsConfig, ask, checked, connect, translated
from bus.nats.consumer import NatsConsumer
from bus.nats.publisher import Publisher
from bus.nats.settlement import Heartbeats
from bus.nats.state import NatsKeyValue, NatsSubscription
from bus.nats.streams import ensure_bucket, ensure_function, ensure_log, have_functions, request
from bus.ports import OnDelivery, OnMessage
from bus.subjects import BUCKETS, LOGS, LogConfig, function_stream, matches

log = logging.getLogger("omnibus.bus")

_WATCH_S = 2.0


class NatsBus:
    """Durable work, broadcasts, logs and small state on one NATS connection. Use as a context manager."""

    def __init__(self, config: NatsConfig) -> None:
        self._config = config
        self._client: Client | None = None
        self._publisher: Publisher
        self._heartbeats = Heartbeats(config.ack_wait_s / 3)
        self._consumers: list[NatsConsumer] = []
        self._buckets: dict[str, NatsKeyValue] = {}
        self._gaps: list[tuple[NatsSubscription, Callable[[], None]]] = []
        self._watchdog: asyncio.Task[None] | None = None
        self._healing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BusUnavailableError: (retryable) no server answers.
            UnauthorizedError: It refused our credentials.
        """
        self._client = await connect(self._config, self._on_reconnect)
        self._publisher = Publisher(self._client, self._config)
        await self._publisher.open()
        self._heartbeats.open()
        self._watchdog = asyncio.get_running_loop().create_task(self._watch(), name="omnibus-watchdog")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close consumers, then send what is still buffered, then disconnect."""
        if self._client is None:
            return
        client, self._client = self._client, None
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed, too
            stack.push_async_callback(self._disconnect, client)
            stack.push_async_callback(self._flush, client)
            stack.push_async_callback(self._heartbeats.close)
            for consumer in self._consumers:
                stack.push_async_callback(consumer.close)
            for task in filter(None, (self._watchdog, self._healing)):
                task.cancel()
                await asyncio.wait([task])

    async def _flush(self, client: Client) -> None:
        try:
            if client.is_connected:
                await client.flush(timeout=2)
        except Exception as failure:
            log.warning("closing: what was buffered may be lost: %s", failure)

    async def _disconnect(self, client: Client) -> None:
        try:
            await client.close()
        except OSError as failure:  # the server has gone before us
            log.info("closing: %s", failure)

    async def setup(self) -> None:
        """Make every log and bucket of the system exist; safe to call from many processes at once."""
        client, config = self._connected, self._config
        logs = (ensure_log(client, config, log_config) for log_config in LOGS)
        # All at once: a worker that is waited for makes this call, and each of them is a round trip.
        await asyncio.gather(*logs, *(ensure_bucket(client, config, bucket) for bucket in BUCKETS.values()))

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise BusError("the bus is not open; use `async with NatsBus(config) as bus`")
        return self._client

    @property
    def max_payload(self) -> int:
        """The most bytes that one message may have, as the server advertised."""
        return self._connected.max_payload

    async def publish(
        self, subject: str, data: bytes, *, message_id: str, headers: Mapping[str, str] | None = None
    ) -> bool:
        """Store a message durably; False when a message of this id was stored before."""
        return await self._publisher.publish(subject, data, message_id, headers)

    async def broadcast(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now, without waiting for anything."""
        with translated(f"broadcasting to {subject}"):
            await self._connected.publish(checked(subject), data)

    async def listen(
        self, subject: str, on_message: OnMessage, on_gap: Callable[[], None] | None = None
    ) -> NatsSubscription:
        """Call back for every message on the subject from now on, and where some may have been missed."""

        async def received(message: Msg) -> None:
            on_message(message.subject, message.data, message.headers or {})

        with translated(f"listening to {subject}"):
            subscription = NatsSubscription(
                self._connected, await self._connected.subscribe(checked(subject), cb=received)
            )
        if on_gap is not None:
            self._gaps = [(one, told) for one, told in self._gaps if not one.closed]
            self._gaps.append((subscription, on_gap))
        return subscription

    async def ensure_function(self, function: str) -> None:
        """Make the stream and the lanes of a function exist."""
        await ensure_function(self._connected, self._config, function)

    async def has_functions(self, functions: Iterable[str]) -> bool:
        """Whether the streams and lanes of all of them exist, as far as one call tells."""
        return await have_functions(self._connected, functions)

    async def serve(
        self, function: str, slots: int, on_delivery: OnDelivery, *, lanes: Iterable[Lane] = tuple(Lane)
    ) -> NatsConsumer:
        """Pull a function's messages, never more than the free slots, weighted over its lanes."""
        consumer = NatsConsumer(self._connected, self._heartbeats, function, slots, on_delivery, lanes)
        await consumer.open()
        self._consumers.append(consumer)
        return consumer

    async def history(self, subject: str, limit: int = 1000) -> list[tuple[str, bytes]]:
        """Stored messages on a subject of a log, oldest first, at most `limit`."""
        log_config = _log_of(subject)
        found: list[tuple[str, bytes]] = []
        sequence = 1
        while len(found) < limit:
            message = await self._next_by_subject(log_config.name, subject, sequence)
            if message is None:
                break
            headers = message.headers or {}
            found.append((headers["Nats-Subject"], message.data))
            sequence = int(headers["Nats-Sequence"]) + 1
        return found

    async def forget(self, subject: str) -> None:
        """Remove the stored messages on a subject of a log."""
        await request(self._connected, f"STREAM.PURGE.{_log_of(subject).name}", {"filter": subject})

    async def _next_by_subject(self, stream: str, subject: str, sequence: int) -> Msg | None:
        body = json.dumps({"seq": sequence, "next_by_subj": subject}).encode()
        message = await ask(self._connected, f"$JS.API.DIRECT.GET.{stream}", body)
        return None if (message.headers or {}).get("Status") else message

    async def backlog(self, function: str) -> dict[Lane, tuple[int, int]]:
        """Messages that wait and messages in flight, by lane."""
        counts = await asyncio.gather(*(self._lane_backlog(function, lane) for lane in Lane))
        return dict(zip(Lane, counts, strict=True))

    async def _lane_backlog(self, function: str, lane: Lane) -> tuple[int, int]:
        operation = f"CONSUMER.INFO.{function_stream(function)}.{lane.value}"
        try:
            info: dict[str, Any] = await request(self._connected, operation, {})
        except NotFoundError:
            return 0, 0
        return info["num_pending"], info["num_ack_pending"]

    async def bucket(self, name: str) -> NatsKeyValue:
        """A KV bucket of `bus.subjects.BUCKETS`; `setup` has made it."""
        if name not in BUCKETS:
            raise BusError(f"no bucket {name!r}; buckets: {', '.join(BUCKETS)}")
        if name not in self._buckets:
            self._buckets[name] = NatsKeyValue(self._connected, name)
        return self._buckets[name]

    async def _on_reconnect(self) -> None:
        log.info("nats: connected again")
        for subscription, on_gap in self._gaps:  # the driver has subscribed again by now
            if not subscription.closed:
                on_gap()
        # In a task of its own: the driver calls this in the middle of its reconnect, which an error here would end.
        if self._healing is not None:
            self._healing.cancel()
        self._healing = asyncio.get_running_loop().create_task(self._heal(), name="omnibus-healing")

    async def _heal(self) -> None:
        """Make good what a lost connection or a server that was restarted has forgotten."""
        steps: list[Callable[[], Awaitable[None]]] = [self._publisher.resend]
        # Streams in memory are gone with the server that kept them.
        steps += [partial(ensure_log, self._connected, self._config, kept) for kept in LOGS if kept.memory]
        steps += [consumer.revive for consumer in self._consumers]
        steps += [bucket.refresh for bucket in self._buckets.values()]
        for step in steps:
            while True:
                try:
                    await step()
                    break
                except OmnibusError as error:
                    log.warning("after a reconnect: %s", error)
                    if not error.retryable:
                        break
                await asyncio.sleep(_WATCH_S)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            for consumer in self._consumers:
                try:
                    await consumer.watch()
                except OmnibusError as error:
                    log.warning("pulling again failed: %s", error)


def _log_of(subject: str) -> LogConfig:
    for found in LOGS:
        # A pattern such as `dlq.>` is itself a subject that the log's pattern matches.
        if any(matches(pattern, subject) for pattern in found.subjects):
            return found
    raise BusError(f"no log keeps {subject}; logs: {', '.join(entry.name for entry in LOGS)}")
