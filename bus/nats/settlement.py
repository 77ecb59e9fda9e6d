"""Answering a delivery, and the signs of life while it is being worked on."""

from __future__ import annotations

import asyncio
import json
import logging

from nats.aio.msg import Msg

from bus.nats.connection import Client, translated
from bus.ports import Delivery

log = logging.getLogger("omnibus.bus")

_SECOND_NS = 1_000_000_000


def read_delivery(message: Msg) -> Delivery:
    """The message with what its reply subject says of it.

    Source: NATS reference, JetStream, `$JS.ACK` reply subjects; the form with domain and account has 12 tokens.
    """
    tokens = message.reply.split(".")
    delivered, _stream, _consumer, stored_ns, pending = tokens[4:9] if len(tokens) < 12 else tokens[6:11]
    return Delivery(
        subject=message.subject,
        data=message.data,
        headers=message.headers or {},
        attempt=int(delivered),
        queued_s=int(stored_ns) / _SECOND_NS,
        pending=int(pending),
    )


class NatsSettlement:
    """How the receiver answers one delivery; only the first answer counts."""

    def __init__(self, client: Client, reply: str, heartbeats: Heartbeats) -> None:
        self._client = client
        self._reply = reply
        self._heartbeats = heartbeats
        self._settled = False

    async def ack(self) -> None:
        """Done: never deliver it again. An ack that is lost leads to a redelivery, which does no harm."""
        await self._answer(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after the delay."""
        body = json.dumps({"delay": int(delay_s * _SECOND_NS)}).encode() if delay_s else b""
        await self._answer(b"-NAK " + body if body else b"-NAK")

    async def term(self) -> None:
        """Give up: never deliver it again."""
        await self._answer(b"+TERM")

    async def in_progress(self) -> None:
        """A sign of life: the ack wait starts anew."""
        if not self._settled:
            await self._client.publish(self._reply, b"+WPI")

    async def _answer(self, word: bytes) -> None:
        if self._settled:
            return
        self._settled = True
        self._heartbeats.remove(self)
        with translated("settling a message"):
            await self._client.publish(self._reply, word)


class Heartbeats:
    """One loop that sends signs of life for every message that is being worked on."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._alive: set[NatsSettlement] = set()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start the loop."""
        self._task = asyncio.get_running_loop().create_task(self._beat(), name="omnibus-heartbeats")

    async def close(self) -> None:
        """Stop the loop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def add(self, settlement: NatsSettlement) -> None:
        """Keep this message from being delivered elsewhere."""
        self._alive.add(settlement)

    def remove(self, settlement: NatsSettlement) -> None:
        """It is settled."""
        self._alive.discard(settlement)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            for settlement in list(self._alive):
                try:
                    await settlement.in_progress()
                except Exception as error:
                    log.warning("a sign of life could not be sent: %s", error)
