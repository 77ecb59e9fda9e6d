"""KV buckets with compare-and-set, straight on their streams."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from bus.errors import BusUnavailableError, ConflictError, PayloadTooLargeError
from bus.nats.connection import WRONG_LAST_SEQUENCE, Client, ask, refused, translated
from bus.nats.streams import request

_MAX_KEYS = 100_000
_AT_ONCE = 64
"""Entries that are asked for together: one after the other, each would wait for a round trip of its own."""


class NatsSubscription:
    """Something that is being listened to."""

    def __init__(self, client: Client, subscription: Any) -> None:
        self._client = client
        self._subscription = subscription

    @property
    def closed(self) -> bool:
        """Whether nobody listens any more."""
        return self._subscription is None

    async def close(self) -> None:
        """Stop; closing twice is fine."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._client.is_closed:
            with translated("unsubscribing"):
                await subscription.unsubscribe()


class NatsWatch(NatsSubscription):
    """Somebody who is told what changes in a bucket.

    Changes come as plain messages: those of a time without a connection are lost, so `refresh` compares.
    """

    def __init__(self, client: Client, on_change: Callable[[str, bytes | None], None], on_close: OnClose) -> None:
        super().__init__(client, None)
        self._on_change = on_change
        self._on_close = on_close
        self._known: dict[str, None] = {}
        self._changed: set[str] = set()

    async def open(self, bucket: NatsKeyValue) -> None:
        """Listen first, then tell what is there."""
        prefix = bucket.prefix

        async def changed(message: Msg) -> None:
            key = message.subject[len(prefix) :]
            self._changed.add(key)
            removed = bool((message.headers or {}).get("KV-Operation"))
            self._tell(key, None if removed else message.data)

        self._subscription = await self._client.subscribe(f"{prefix}>", cb=changed)
        await self.refresh(bucket)

    async def refresh(self, bucket: NatsKeyValue) -> None:
        """Tell what is there and what is gone, unless a change told more meanwhile."""
        self._changed.clear()
        found = await bucket.entries()
        for key in [*found, *(key for key in self._known if key not in found)]:
            if key not in self._changed:
                self._tell(key, found.get(key))

    async def close(self) -> None:
        """Stop; closing twice is fine."""
        self._on_close(self)
        await super().close()

    def _tell(self, key: str, value: bytes | None) -> None:
        self._known.pop(key, None)
        if value is not None:
            self._known[key] = None
            while len(self._known) > _MAX_KEYS:  # entries expire without a word
                del self._known[next(iter(self._known))]
        self._on_change(key, value)


OnClose = Callable[[NatsWatch], None]


class NatsKeyValue:
    """One bucket.

    Source: ADR-8, JetStream based Key-Value Stores. A removal is a message with `KV-Operation: DEL`.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."
        self._watches: set[NatsWatch] = set()

    @property
    def prefix(self) -> str:
        """What the subjects of its entries start with."""
        return self._prefix

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision; None when there is none."""
        message = await ask(self._client, f"$JS.API.DIRECT.GET.{self._stream}.{self._prefix}{key}", b"")
        headers = message.headers or {}
        if headers.get("Status") == "404" or headers.get("KV-Operation"):
            return None
        if "Nats-Sequence" not in headers:
            raise BusUnavailableError(f"reading {self._name}/{key}: {headers.get('Description', 'no answer')}")
        return message.data, int(headers["Nats-Sequence"])

    async def put(self, key: str, value: bytes) -> int:
        """Write whatever was there; returns the revision."""
        return await self._write(key, value, {})

    async def create(self, key: str, value: bytes) -> int:
        """Write when nothing is there.

        Raises:
            ConflictError: (retryable) something is.
        """
        try:
            return await self.update(key, value, 0)
        except ConflictError:
            revision = await self._removed_revision(key)
            if revision is None:
                raise
            return await self.update(key, value, revision)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write when the revision is still this one.

        Raises:
            ConflictError: (retryable) it is not.
        """
        return await self._write(key, value, {"Nats-Expected-Last-Subject-Sequence": str(revision)})

    async def delete(self, key: str) -> None:
        """Remove the key."""
        await self._write(key, b"", {"KV-Operation": "DEL"})

    async def entries(self) -> dict[str, bytes]:
        """Every key with its value."""
        body = {"subjects_filter": f"{self._prefix}>"}
        info = await request(self._client, f"STREAM.INFO.{self._stream}", body)
        keys = [subject[len(self._prefix) :] for subject in sorted(info["state"].get("subjects") or {})[:_MAX_KEYS]]
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            entries = await asyncio.gather(*(self.get(key) for key in some))
            found |= {key: entry[0] for key, entry in zip(some, entries, strict=True) if entry is not None}
        return found

    async def watch(self, on_change: Callable[[str, bytes | None], None]) -> NatsWatch:
        """Call back for every present entry and every later change; None is a removal."""
        watch = NatsWatch(self._client, on_change, self._watches.discard)
        self._watches.add(watch)
        try:
            with translated(f"watching {self._name}"):
                await watch.open(self)
        except BaseException:
            await watch.close()
            raise
        return watch

    async def refresh(self) -> None:
        """The connection is a new one: tell those who watch what they have missed."""
        for watch in list(self._watches):
            await watch.refresh(self)

    async def _write(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        if len(value) + 512 > self._client.max_payload:
            raise PayloadTooLargeError(
                f"{self._name}/{key}: {len(value)} bytes are over max_payload, {self._client.max_payload}",
                nbytes=len(value),
                limit=self._client.max_payload,
            )
        message = await ask(self._client, self._prefix + key, value, headers)
        answer = json.loads(message.data)
        failure = answer.get("error")
        if failure is None:
            return int(answer["seq"])
        if failure.get("err_code") in WRONG_LAST_SEQUENCE:
            raise ConflictError(f"{self._name}/{key} was changed by somebody else", key=key)
        raise refused(f"writing {self._name}/{key}", failure)

    async def _removed_revision(self, key: str) -> int | None:
        """Revision of the removal that is the last word on the key; None when its last word is a value."""
        try:
            answer = await request(self._client, f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": self._prefix + key})
        except NotFoundError:
            return 0
        message = answer["message"]
        headers = base64.b64decode(message.get("hdrs", "")).decode()
        return int(message["seq"]) if "KV-Operation" in headers else None
