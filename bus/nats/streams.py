"""Streams, consumers and buckets as JetStream keeps them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from nats.js.errors import NotFoundError

from bus.contracts import Lane
from bus.errors import BusError
from bus.nats.connection import Client, NatsConfig, ask, refused
from bus.subjects import BucketConfig, LogConfig, function_stream, work

_SECOND_NS = 1_000_000_000
DUPLICATE_WINDOW_S = 120
"""Within this time a stream recognises a message id that it has stored."""

_ALREADY_DIFFERENT = (10058, 10148)
_MAX_MESSAGES = 100_000


async def request(client: Client, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """One call of the JetStream API.

    Source: NATS reference, JetStream wire API, `$JS.API.*`.

    Raises:
        NotFoundError: The stream, consumer or message does not exist.
        BusUnavailableError: (retryable) JetStream does not answer.
        BusError: It refused.
    """
    message = await ask(client, f"$JS.API.{operation}", json.dumps(body).encode())
    answer: dict[str, Any] = json.loads(message.data)
    failure = answer.get("error")
    if failure is None:
        return answer
    if failure.get("code") == 404:
        raise NotFoundError(code=404, err_code=failure.get("err_code"), description=failure.get("description"))
    raise refused(f"JetStream {operation}", failure)


async def _ensure_stream(client: Client, name: str, config: dict[str, Any]) -> None:
    body = {"name": name, "num_replicas": 1, "allow_direct": True, **config}
    try:
        await request(client, f"STREAM.CREATE.{name}", body)
    except BusError as error:
        if error.details.get("err_code") not in _ALREADY_DIFFERENT:
            raise
        await request(client, f"STREAM.UPDATE.{name}", body)


async def ensure_function(client: Client, config: NatsConfig, function: str) -> None:
    """The work-queue stream of a function, with one durable pull consumer for each lane.

    Dead letters are decided by the invoker, which knows why; so the server never stops delivering.
    """
    stream, *lanes = function_settings(config, function)
    name = function_stream(function)
    await _ensure_stream(client, name, stream)
    consumers = ({"stream_name": name, "config": lane} for lane in lanes)
    await asyncio.gather(*(_ensure_consumer(client, consumer) for consumer in consumers))


def function_settings(config: NatsConfig, function: str) -> list[dict[str, Any]]:
    """How the stream of a function is made, and then each of its lanes."""
    stream = {
        "subjects": [work(function, lane) for lane in Lane],
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",
        "max_msgs": _MAX_MESSAGES,
        "duplicate_window": DUPLICATE_WINDOW_S * _SECOND_NS,
        "num_replicas": config.replicas,
    }
    lanes = [
        {
            "durable_name": lane.value,
            "filter_subject": work(function, lane),
            "ack_policy": "explicit",
            "ack_wait": int(config.ack_wait_s * _SECOND_NS),
            "max_deliver": -1,
            "max_ack_pending": 10_000,
            "max_waiting": 2_048,
        }
        for lane in Lane
    ]
    return [stream, *lanes]


async def _ensure_consumer(client: Client, body: dict[str, Any]) -> None:
    lane = body["config"]
    await request(
        client, f"CONSUMER.CREATE.{body['stream_name']}.{lane['durable_name']}.{lane['filter_subject']}", body
    )


async def have_functions(client: Client, functions: Iterable[str]) -> bool:
    """Whether all of them have their streams and lanes; one call, whose answer has the first 256 streams."""
    answer = await request(client, "STREAM.LIST", {"subject": "fn.>"})
    lanes = {one["config"]["name"]: one["state"]["consumer_count"] for one in answer["streams"] or ()}
    return all(lanes.get(function_stream(function), 0) >= len(Lane) for function in functions)


async def ensure_log(client: Client, config: NatsConfig, log: LogConfig) -> None:
    """A stream that keeps messages for a time."""
    await _ensure_stream(
        client,
        log.name,
        {
            "subjects": list(log.subjects),
            "retention": "limits",
            "storage": "memory" if log.memory else "file",
            "max_age": int(log.keep_s * _SECOND_NS),
            "duplicate_window": int(min(DUPLICATE_WINDOW_S, log.keep_s) * _SECOND_NS),
            "num_replicas": config.replicas,
            "max_bytes": log.max_nbytes,
            "discard": "old",
        },
    )


async def ensure_bucket(client: Client, config: NatsConfig, bucket: BucketConfig) -> None:
    """The stream behind a KV bucket.

    Source: ADR-8, JetStream based Key-Value Stores.
    """
    await _ensure_stream(
        client,
        f"KV_{bucket.name}",
        {
            "subjects": [f"$KV.{bucket.name}.>"],
            "retention": "limits",
            "storage": "file",
            "max_age": int(bucket.ttl_s * _SECOND_NS),
            "max_msgs_per_subject": 1,
            "max_bytes": bucket.max_nbytes or -1,
            "discard": "old" if bucket.max_nbytes else "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "duplicate_window": int(min(DUPLICATE_WINDOW_S, bucket.ttl_s or DUPLICATE_WINDOW_S) * _SECOND_NS),
            "num_replicas": config.replicas,
        },
    )
