"""Every subject, stream and bucket of the system, in one place.

| what              | subject                    |
|-------------------|----------------------------|
| work              | `fn.<function>.<lane>`     |
| starting a pipeline | `fn.pipeline.start.<lane>` |
| results           | `result.<request>`         |
| tokens            | `token.<request>`          |
| spans             | `trace.<request>`          |
| dead letters      | `dlq.<function>`           |
"""

from __future__ import annotations

from dataclasses import dataclass

from bus.contracts import Lane

START_FUNCTION = "pipeline.start"
"""The function that takes a `Request` and starts its pipeline."""


def work(function: str, lane: Lane) -> str:
    """Where a function's events of a lane go."""
    return f"fn.{function}.{lane.value}"


def work_of_all_lanes(function: str) -> str:
    """A pattern of where a function's events of any lane go."""
    return f"fn.{function}.*"


def function_of(work_subject: str) -> str:
    """The function whose event was published on a subject that `work` gave."""
    return work_subject.removeprefix("fn.").rpartition(".")[0]


def lane_of(work_subject: str) -> str:
    """The lane of an event that was published on a subject that `work` gave."""
    return work_subject.rpartition(".")[2]


def result(request: str) -> str:
    """Where the end of a request is told, once."""
    return f"result.{request}"


def token(request: str) -> str:
    """Where a request's answer is streamed."""
    return f"token.{request}"


def trace(request: str) -> str:
    """Where the spans of a request go."""
    return f"trace.{request}"


def dead(function: str) -> str:
    """Where a function's dead letters go."""
    return f"dlq.{function}"


def function_stream(function: str) -> str:
    """Name of the stream that keeps a function's work; `a.b_c` and `a_b.c` have two."""
    return "FN_" + function.replace("_", "__").replace(".", "_")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one that the pattern means: `*` is one token, a last `>` one or more.

    Source: NATS documentation, Subject-Based Messaging, Wildcards.
    """
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token_pattern in enumerate(wanted):
        if token_pattern == ">":
            return index == len(wanted) - 1 and len(tokens) > index
        if index >= len(tokens) or token_pattern not in ("*", tokens[index]):
            return False
    return len(wanted) == len(tokens)


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """A stream that keeps what happened.

    Attributes:
        name: Of the stream.
        subjects: What it captures.
        keep_s: How long, in seconds.
        max_nbytes: The most that it keeps; beyond it the oldest messages go, so that a log never fills the server.
        memory: In memory instead of on disk.
        once: The first message on a subject stays the only one.
    """

    name: str
    subjects: tuple[str, ...]
    keep_s: float
    max_nbytes: int
    memory: bool = False
    once: bool = False


_MIB = 1024 * 1024

LOGS = (
    LogConfig(name="RESULTS", subjects=("result.*",), keep_s=86_400, max_nbytes=1024 * _MIB, once=True),
    LogConfig(name="TOKENS", subjects=("token.*",), keep_s=600, max_nbytes=64 * _MIB, memory=True),
    LogConfig(name="TRACES", subjects=("trace.*",), keep_s=86_400, max_nbytes=512 * _MIB),
    LogConfig(name="DEAD", subjects=("dlq.>",), keep_s=7 * 86_400, max_nbytes=512 * _MIB),
)
"""The logs that every deployment has."""


def is_once(subject: str) -> bool:
    """Whether the subject's first message is to stay the only one."""
    return any(log.once and matches(pattern, subject) for log in LOGS for pattern in log.subjects)


@dataclass(frozen=True, kw_only=True)
class BucketConfig:
    """A KV bucket.

    Attributes:
        name: Of the bucket.
        ttl_s: Entries vanish after this many seconds; 0: never.
        max_nbytes: The most that it keeps; beyond it the oldest entries vanish. 0: no limit, for small values.
    """

    name: str
    ttl_s: float = 0.0
    max_nbytes: int = 0


LEASE_TTL_S = 10.0
"""A worker that has not renewed its lease for this long is gone."""

MODEL_TTL_S = 60.0
"""A model that no worker has announced for this long is served by none."""

BUCKETS = {
    bucket.name: bucket
    for bucket in (
        BucketConfig(name="requests", ttl_s=86_400),
        BucketConfig(name="joins", ttl_s=7 * 86_400, max_nbytes=512 * _MIB),
        BucketConfig(name="cancels", ttl_s=3_600),
        BucketConfig(name="suspects", ttl_s=86_400, max_nbytes=64 * _MIB),
        BucketConfig(name="workers", ttl_s=LEASE_TTL_S),
        BucketConfig(name="pools", ttl_s=LEASE_TTL_S),
        BucketConfig(name="models", ttl_s=MODEL_TTL_S),
        BucketConfig(name="plans"),
        BucketConfig(name="cache", ttl_s=86_400, max_nbytes=512 * _MIB),
        BucketConfig(name="encoded", ttl_s=86_400, max_nbytes=256 * _MIB),
    )
}
"""The KV buckets that every deployment has."""
