"""The messages on the bus: work, results, token chunks, spans, dead letters."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator

from bus.contracts.base import Contract

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Lane(StrEnum):
    """The service class of a request; each is a subject of its own."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class ReplyFormat(StrEnum):
    """How the result and the token chunks of a request are written."""

    MSGPACK = "msgpack"
    JSON = "json"


def check_request_id(value: str) -> str:
    """The id itself, when it can be one token of a subject.

    Raises:
        ValueError: Anything but 1 to 64 letters, digits, `-` and `_`.
    """
    if not _REQUEST_ID.fullmatch(value):
        raise ValueError(f"a request id is 1 to 64 letters, digits, '-' or '_', not {value!r}")
    return value


class Request(Contract):
    """What a client publishes to `fn.pipeline.start.<lane>` to start a pipeline."""

    schema_name = "omnibus.request"
    schema_version = 1

    request: str = Field(description="Chosen by the client; publishing it twice runs it once.")
    pipeline: str
    inputs: dict[str, Any] = Field(default_factory=dict, description="The pipeline's inputs by name.")
    tenant: str = "default"
    lane: Lane = Lane.INTERACTIVE
    deadline_s: float | None = Field(default=None, description="Unix time after which nobody waits.")
    reply_format: ReplyFormat = ReplyFormat.JSON
    labels: dict[str, str] = Field(default_factory=dict)
    traceparent: str | None = Field(default=None, description="W3C trace context of the caller.")

    _check_request = field_validator("request")(check_request_id)


class Event(Contract):
    """One message of work: everything that one run of one stage needs to know."""

    schema_name = "omnibus.event"
    schema_version = 1

    request: str
    stage: str
    function: str
    pipeline: str
    plan: str = Field(default="", description="Digest of the compiled pipeline; empty: nothing follows.")
    sequence: int = Field(default=0, ge=0, description="0; a replay by an operator counts up.")
    tenant: str = "default"
    lane: Lane = Lane.INTERACTIVE
    created_s: float = Field(description="Unix time at which the request was accepted.")
    deadline_s: float | None = None
    budget: dict[str, int] = Field(default_factory=dict, description="Limits of this request by name.")
    inputs: dict[str, Any] = Field(default_factory=dict, description="The function's inputs by name.")
    carry: dict[str, Any] = Field(
        default_factory=dict, description="Values that later stages need, by `stage.output` or `request.input`."
    )
    labels: dict[str, str] = Field(default_factory=dict)
    traceparent: str | None = None
    reply_format: ReplyFormat = ReplyFormat.MSGPACK

    _check_request = field_validator("request")(check_request_id)

    @property
    def message_id(self) -> str:
        """The same for every delivery and every re-publication of this run: what makes it idempotent."""
        return f"{self.request}.{self.stage}.{self.sequence}"


class ErrorRecord(Contract):
    """An error as it travels."""

    code: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    stage: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class ResultStatus(StrEnum):
    """How a request ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Result(Contract):
    """The end of a request, published once on `result.<request>`."""

    schema_name = "omnibus.result"
    schema_version = 1

    request: str
    pipeline: str
    status: ResultStatus
    outputs: dict[str, Any] = Field(default_factory=dict)
    error: ErrorRecord | None = None
    created_s: float
    finished_s: float


class TokenChunk(Contract):
    """A piece of a streamed answer, published on `token.<request>`.

    A redelivered stage streams again from the start: `offset` tells a reader what it has already seen.
    """

    schema_name = "omnibus.token_chunk"
    schema_version = 1

    request: str
    stage: str
    offset: int = Field(ge=0, description="Characters of this stage's stream before this chunk.")
    text: str = ""
    data: dict[str, Any] = Field(default_factory=dict, description="Anything else, such as a progress note.")


class CacheState(StrEnum):
    """Whether a run was avoided."""

    OFF = "off"
    MISS = "miss"
    HIT = "hit"


class Span(Contract):
    """One run of one stage as the trace keeps it, published on `trace.<request>`."""

    schema_name = "omnibus.span"
    schema_version = 1

    request: str
    stage: str
    function: str
    worker: str
    attempt: int = Field(ge=1, description="Which delivery this was.")
    status: str = Field(description="ok, skipped, or an error code.")
    cache: CacheState = CacheState.OFF
    queued_s: float = Field(description="Unix time at which the event was published.")
    started_s: float
    finished_s: float
    traceparent: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class DeadLetter(Contract):
    """An event that will not be tried again by itself, on `dlq.<function>`."""

    schema_name = "omnibus.dead_letter"
    schema_version = 1

    event: Event
    error: ErrorRecord
    attempts: int
    queued_s: float
    dead_s: float
    worker: str


class Suspicion(Contract):
    """What became of the workers that had a message; nothing at all for nearly every message."""

    schema_name = "omnibus.suspicion"
    schema_version = 1

    interruptions: int = Field(default=0, description="Workers that ended without a word while they had it.")
    crashes: int = Field(default=0, description="Those that crashed or hung, by themselves, while they ran it.")
