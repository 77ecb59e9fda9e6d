"""`MemoryBus`: the whole bus within one process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from bus.contracts import Lane
from bus.errors import BusError, BusUnavailableError, PayloadTooLargeError
from bus.memory.consumer import MemoryConsumer
from bus.memory.state import MemoryKeyValue, MemorySubscription
from bus.memory.work import WorkQueue
from bus.ports import OnDelivery, OnMessage
from bus.subjects import BUCKETS, LOGS, LogConfig, matches, work

_DUPLICATE_WINDOW_S = 120.0
_HEADER_ROOM = 256
_MAX_LOG_MESSAGES = 100_000


class _Log:
    """One stream of `bus.subjects.LOGS`."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self._messages: deque[tuple[float, str, bytes]] = deque()
        self._counts: Counter[str] = Counter()

    def captures(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.config.subjects)

    def add(self, subject: str, data: bytes) -> bool:
        self._expire()
        if self.config.once and self._counts[subject]:
            return False
        self._messages.append((time.time(), subject, data))
        self._counts[subject] += 1
        return True

    def forget(self, pattern: str) -> None:
        kept = [message for message in self._messages if not matches(pattern, message[1])]
        self._messages = deque(kept)
        self._counts = Counter(subject for _, subject, _ in kept)

    def read(self, pattern: str, limit: int) -> list[tuple[str, bytes]]:
        self._expire()
        if not {"*", ">"} & set(pattern) and not self._counts[pattern]:
            return []
        found = [(subject, data) for _, subject, data in self._messages if matches(pattern, subject)]
        return found[:limit]

    def _expire(self) -> None:
        oldest_s = time.time() - self.config.keep_s
        while self._messages and (self._messages[0][0] < oldest_s or len(self._messages) >= _MAX_LOG_MESSAGES):
            _, subject, _ = self._messages.popleft()
            self._counts[subject] -= 1
            if not self._counts[subject]:
                del self._counts[subject]


class _RecentIds:
    """Message ids of the last two minutes; a stream takes each of them once."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def knows(self, message_id: str) -> bool:
        now = time.time()
        while self._seen and now - next(iter(self._seen.values())) > _DUPLICATE_WINDOW_S:
            del self._seen[next(iter(self._seen))]
        return message_id in self._seen

    def add(self, message_id: str) -> None:
        self._seen[message_id] = time.time()


class MemoryBus:
    """The `Bus` port without a server: for one function on its own, for tests and for embedding.

    It keeps what JetStream promises: work stays until it is acked, is delivered at least once, in lanes, and
    comes back after a nak or when nobody settles it; an id is stored once per stream; logs and buckets are
    those of `bus.subjects`. Everything is gone when the process is.
    """

    def __init__(self, *, ack_wait_s: float = 5.0, max_payload: int = 1024 * 1024) -> None:
        """A bus with every log and bucket of the system and no function yet.

        Args:
            ack_wait_s: A message that its receiver left unsettled is delivered again after so long.
            max_payload: The most bytes that one message may have.
        """
        self._ack_wait_s = ack_wait_s
        self._max_payload = max_payload
        self._logs = [_Log(config) for config in LOGS]
        self._buckets = {bucket.name: MemoryKeyValue(bucket.name, bucket.ttl_s) for bucket in BUCKETS.values()}
        self._queues: dict[str, WorkQueue] = {}
        self._lanes: dict[str, tuple[str, Lane]] = {}
        self._ids: dict[str, _RecentIds] = {}
        self._listeners: list[tuple[str, OnMessage]] = []
        self._consumers: list[MemoryConsumer] = []

    async def __aenter__(self) -> Self:
        """Nothing to connect to."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what is being served."""
        for consumer in self._consumers:
            await consumer.close()
        for queue in self._queues.values():
            queue.close()
        self._listeners.clear()

    async def setup(self) -> None:
        """Logs and buckets are there from the start."""

    @property
    def max_payload(self) -> int:
        """The most bytes that one message may have."""
        return self._max_payload

    async def publish(
        self, subject: str, data: bytes, *, message_id: str, headers: Mapping[str, str] | None = None
    ) -> bool:
        """Store a message durably; False when a message of this id was stored before.

        Raises:
            PayloadTooLargeError: More than `max_payload`.
            BusUnavailableError: (retryable) no function and no log takes this subject.
        """
        self._check_size(subject, data, headers)
        stream = self._stream(subject)
        self._tell(subject, data, headers or {})
        ids = self._ids.setdefault(stream, _RecentIds())
        if ids.knows(message_id) or not self._store(subject, data, headers or {}):
            return False
        ids.add(message_id)
        return True

    async def broadcast(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now; a log that captures the subject keeps it."""
        self._check_size(subject, data, None)
        log = self._log(subject)
        if log is not None:
            log.add(subject, data)
        self._tell(subject, data, {})

    async def listen(
        self, subject: str, on_message: OnMessage, on_gap: Callable[[], None] | None = None
    ) -> MemorySubscription:
        """Call back for every message on the subject from now on; `*` and `>` work. There are no gaps."""
        entry = (subject, on_message)
        self._listeners.append(entry)

        def stop() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return MemorySubscription(stop)

    async def ensure_function(self, function: str) -> None:
        """Make the stream and the lanes of a function exist."""
        if function not in self._queues:
            self._queues[function] = WorkQueue(self._ack_wait_s)
            self._lanes.update({work(function, lane): (function, lane) for lane in Lane})

    async def serve(
        self, function: str, slots: int, on_delivery: OnDelivery, *, lanes: Iterable[Lane] = tuple(Lane)
    ) -> MemoryConsumer:
        """Pull a function's messages, never more than the free slots, weighted over its lanes.

        Raises:
            BusError: `ensure_function` was not called.
        """
        if function not in self._queues:
            raise BusError(f"no stream of function {function!r}; call ensure_function first", function=function)
        consumer = MemoryConsumer(self._queues[function], slots, on_delivery, lanes)
        self._consumers.append(consumer)
        return consumer

    async def history(self, subject: str, limit: int = 1000) -> list[tuple[str, bytes]]:
        """Stored messages on a subject of a log, oldest first, at most `limit`.

        Raises:
            BusError: No log keeps that subject.
        """
        log = self._log(subject)
        if log is None:
            names = ", ".join(entry.config.name for entry in self._logs)
            raise BusError(f"no log keeps {subject}; logs: {names}", subject=subject)
        return log.read(subject, limit)

    async def forget(self, subject: str) -> None:
        """Remove the stored messages on a subject of a log."""
        log = self._log(subject)
        if log is not None:
            log.forget(subject)

    async def backlog(self, function: str) -> dict[Lane, tuple[int, int]]:
        """Messages that wait and messages in flight, by lane."""
        queue = self._queues.get(function)
        if queue is None:
            return dict.fromkeys(Lane, (0, 0))
        return {lane: (queue.waiting(lane), queue.in_flight(lane)) for lane in Lane}

    async def bucket(self, name: str) -> MemoryKeyValue:
        """A KV bucket of `bus.subjects.BUCKETS`.

        Raises:
            BusError: No such bucket.
        """
        if name not in self._buckets:
            raise BusError(f"no bucket {name!r}; buckets: {', '.join(self._buckets)}", bucket=name)
        return self._buckets[name]

    def _log(self, subject: str) -> _Log | None:
        return next((log for log in self._logs if log.captures(subject)), None)

    def _stream(self, subject: str) -> str:
        if subject in self._lanes:
            return f"fn.{self._lanes[subject][0]}"
        log = self._log(subject)
        if log is None:
            raise BusUnavailableError(
                f"no stream keeps {subject}; call ensure_function first for work", subject=subject
            )
        return log.config.name

    def _store(self, subject: str, data: bytes, headers: Mapping[str, str]) -> bool:
        if subject in self._lanes:
            function, lane = self._lanes[subject]
            self._queues[function].add(subject, bytes(data), headers, lane)
            return True
        log = self._log(subject)
        return log is not None and log.add(subject, bytes(data))

    def _tell(self, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        for entry in self._listeners:
            if matches(entry[0], subject):
                # Later, so that whoever publishes is never run into by whoever listens.
                loop.call_soon(self._call, entry, subject, data, headers)

    def _call(self, entry: tuple[str, OnMessage], subject: str, data: bytes, headers: Mapping[str, str]) -> None:
        if entry in self._listeners:
            entry[1](subject, data, headers)

    def _check_size(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> None:
        nbytes = len(data) + _HEADER_ROOM + sum(len(key) + len(value) + 4 for key, value in (headers or {}).items())
        if nbytes > self._max_payload:
            raise PayloadTooLargeError(
                f"a message of {nbytes} bytes for {subject} is over the max_payload of {self._max_payload}; "
                "put large values into the object store and send a reference",
                nbytes=nbytes,
                limit=self._max_payload,
            )
