"""What is told of work beside its body, so that who only counts or routes it need not read it.

Attributes of CloudEvents 1.0 in binary mode, three of them our own: `ce-tenant`, `ce-plan` and `ce-stages`. What is in
them follows from the body, which is what counts; clients that publish without them are served all the same.

Source: CloudEvents 1.0, NATS protocol binding, section 3.1.3 (headers, percent-encoded).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

from bus.contracts import Event, Request
from bus.contracts.codec import MSGPACK_TYPE, digest

DEFAULT_TENANT = "default"
"""Whose work is that says nothing of it."""

LONGEST_LABEL = 60
"""Characters of a tenant's label at most."""

_LONGEST_PLAN = 128
"""Characters of a plan's digest at most."""

_LONGEST_STAGES = 16_384
"""Characters of all stages' names that are read."""

_TENANT, _PLAN, _STAGES = "ce-tenant", "ce-plan", "ce-stages"


def event_headers(event: Event, stages: Iterable[str] = ()) -> dict[str, str]:
    """Of an event of work.

    Args:
        event: The event.
        stages: Names of those that its request can still get to, its own among them; none: nothing is told of it.
    """
    headers = {
        "ce-specversion": "1.0",
        "ce-id": event.message_id,
        "ce-type": "omnibus.event.1",
        "ce-source": f"/pipelines/{event.pipeline}",
        "content-type": MSGPACK_TYPE,
    }
    if event.tenant != DEFAULT_TENANT:
        headers[_TENANT] = tenant_label(event.tenant)
    if event.plan:
        headers[_PLAN] = event.plan
    if reached := ",".join(stages):
        headers[_STAGES] = reached
    if event.traceparent is not None:
        headers["traceparent"] = event.traceparent
    return headers


def request_headers(request: Request) -> dict[str, str]:
    """Of a request that starts a pipeline."""
    return {} if request.tenant == DEFAULT_TENANT else {_TENANT: tenant_label(request.tenant)}


@lru_cache(maxsize=1024)
def tenant_label(tenant: str) -> str:
    """A tenant's name as a header and a worker's record have it: printable ASCII, at most `LONGEST_LABEL` characters.

    It tells tenants apart. A name that is longer, percent-encoded, is told by its digest.
    """
    # Encoded, so that whoever names a tenant cannot write further headers; lone surrogates have no bytes.
    escaped = quote(tenant, safe="", errors="replace")
    return escaped if len(escaped) <= LONGEST_LABEL else digest(escaped.encode())[:LONGEST_LABEL]


def tenant_of(headers: Mapping[str, str]) -> str:
    """The label of whose work it is."""
    # Whoever publishes can write anything, and it is remembered.
    return headers.get(_TENANT, DEFAULT_TENANT)[:LONGEST_LABEL]


def plan_of(headers: Mapping[str, str]) -> str:
    """Digest of the plan that it is a stage of; empty where nothing is told of it, or what cannot be a digest."""
    plan = headers.get(_PLAN, "")
    return plan if plan.isascii() and plan.isalnum() and len(plan) <= _LONGEST_PLAN else ""


def stages_of(headers: Mapping[str, str]) -> frozenset[str]:
    """Names of the stages that its request can still get to; none where nothing is told of it, or too much."""
    stages = headers.get(_STAGES, "")
    return frozenset(filter(None, stages.split(","))) if len(stages) <= _LONGEST_STAGES else frozenset()
