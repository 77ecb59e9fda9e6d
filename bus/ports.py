"""What the rest of the system needs of a bus, an object store and a tensor plane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from bus.contracts import INLINE_MAX_NBYTES, Lane, TensorRef

Array = NDArray[Any]


class ObjectStore(Protocol):
    """Bytes by key. Keys are `/`-separated; an object never changes once it is written."""

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store the bytes; storing the same key again is not an error.

        Raises:
            StoreUnavailableError: (retryable) the store does not answer.
        """

    async def get(self, key: str) -> bytes:
        """The bytes of the key.

        Raises:
            ObjectMissingError: No such key.
            StoreUnavailableError: (retryable) the store does not answer.
        """

    async def nbytes(self, key: str) -> int | None:
        """Size of the object; None when there is none."""

    async def age_s(self, key: str) -> float | None:
        """Seconds since the object was last written; None when there is none."""

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""

    async def expire(self, prefix: str, older_than_s: float) -> int:
        """Remove what starts with the prefix and was last written longer ago; returns how many objects."""

    def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Every key that starts with the prefix."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TensorPlane(Protocol):
    """Tensors by reference: inline, host-local shared memory or the object store."""

    async def put(self, array: np.ndarray[Any, Any], *, inline_nbytes: int = INLINE_MAX_NBYTES) -> TensorRef:
        """Keep a tensor; durable once this returns.

        Args:
            array: The tensor.
            inline_nbytes: Below this many bytes it rides inside the message; less where many travel together.
        """

    async def get(self, ref: TensorRef) -> Array:
        """The tensor, read-only, without a copy where it is on this host.

        Raises:
            ObjectMissingError: It is nowhere any more.
            ObjectCorruptError: The bytes found do not match the digest.
        """


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one message.

    Attributes:
        subject: Where it was published.
        data: The payload.
        headers: Its headers.
        attempt: Which delivery this is, from 1.
        queued_s: Unix time at which the bus stored it.
        pending: Messages that wait behind it in its lane.
    """

    subject: str
    data: bytes
    headers: Mapping[str, str]
    attempt: int
    queued_s: float
    pending: int


class Settlement(Protocol):
    """How the receiver answers a delivery; exactly one of the three, once."""

    async def ack(self) -> None:
        """Done: never deliver it again."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after the delay."""

    async def term(self) -> None:
        """Give up: never deliver it again, it was not done."""


OnDelivery = Callable[[Delivery, Settlement], Coroutine[Any, Any, None]]
OnMessage = Callable[[str, bytes, Mapping[str, str]], None]
"""Called with the subject of a message, its payload, and its headers."""


class Subscription(Protocol):
    """Something that is being listened to or served."""

    async def close(self) -> None:
        """Stop; closing twice is fine."""


class Consumer(Subscription, Protocol):
    """A function being served."""

    @property
    def busy(self) -> int:
        """Deliveries that have not been settled."""

    @property
    def full(self) -> bool:
        """Whether the next message of some lane has to wait; the others keep a slot each."""

    async def stop_pulling(self) -> None:
        """Take nothing new; what runs goes on, and its in-progress acks too."""

    async def drain(self, grace_s: float) -> None:
        """Stop pulling and wait for what runs; what is not done in time is handed back."""


class KeyValue(Protocol):
    """A bucket of small values with compare-and-set."""

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision; None when there is none."""

    async def put(self, key: str, value: bytes) -> int:
        """Write whatever was there; returns the revision."""

    async def create(self, key: str, value: bytes) -> int:
        """Write when nothing is there.

        Raises:
            ConflictError: (retryable) something is.
        """

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write when the revision is still this one.

        Raises:
            ConflictError: (retryable) it is not.
        """

    async def delete(self, key: str) -> None:
        """Remove the key."""

    async def entries(self) -> dict[str, bytes]:
        """Every key with its value."""

    async def watch(self, on_change: Callable[[str, bytes | None], None]) -> Subscription:
        """Call back for every present entry and every later change; None is a removal."""


class Bus(Protocol):
    """Durable work, broadcast messages, logs and small state: all that the system needs of a broker."""

    @property
    def max_payload(self) -> int:
        """The most bytes that one message may have."""

    async def publish(
        self, subject: str, data: bytes, *, message_id: str, headers: Mapping[str, str] | None = None
    ) -> bool:
        """Store a message durably; False when a message of this id was stored before.

        Raises:
            PayloadTooLargeError: More than `max_payload`.
            BusUnavailableError: (retryable) it was not confirmed.
        """

    async def broadcast(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now, without waiting for anything."""

    async def listen(
        self, subject: str, on_message: OnMessage, on_gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Call back for every message on the subject from now on; `*` and `>` work.

        Args:
            subject: Or a pattern.
            on_message: Is called with each.
            on_gap: Is called when the connection was lost and is back: what was sent meanwhile was not heard.
        """

    async def ensure_function(self, function: str) -> None:
        """Make the stream and the lanes of a function exist."""

    async def serve(
        self, function: str, slots: int, on_delivery: OnDelivery, *, lanes: Iterable[Lane] = tuple(Lane)
    ) -> Consumer:
        """Pull a function's messages, never more than the free slots, weighted over its lanes."""

    async def history(self, subject: str, limit: int = 1000) -> list[tuple[str, bytes]]:
        """Stored messages on a subject of a log (results, tokens, traces, dead letters), oldest first."""

    async def forget(self, subject: str) -> None:
        """Remove the stored messages on a subject of a log."""

    async def backlog(self, function: str) -> dict[Lane, tuple[int, int]]:
        """Messages that wait and messages in flight, by lane."""

    async def bucket(self, name: str) -> KeyValue:
        """A KV bucket of `bus.subjects.BUCKETS`."""
