"""`/health`: what this deployment can do now, told from the workers' leases."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from bus.contracts import Lease, WorkerState
from bus.contracts.codec import decode
from bus.errors import OmnibusError
from functions.gateway.services import GatewayServices, services_of

router = APIRouter(tags=["health"])


class Health(StrEnum):
    """How the deployment is."""

    STARTING = "STARTING"
    READY = "READY"
    BUSY = "BUSY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"


_STATUSES = {Health.STARTING: 503, Health.UNHEALTHY: 503}


@router.get("/health")
async def read_health(request: Request) -> Response:
    """STARTING or UNHEALTHY with 503; READY, BUSY (every slot taken) or DEGRADED (some pipelines lack a worker)."""
    try:
        health, body = await _look(services_of(request))
    except OmnibusError as error:
        health, body = Health.UNHEALTHY, {"reason": error.message}
    return Response(to_json({"status": health, **body}), _STATUSES.get(health, 200), media_type="application/json")


async def _look(services: GatewayServices) -> tuple[Health, dict[str, Any]]:
    bucket = await services.bus.bucket("workers")
    leases = [decode(Lease, value) for value in (await bucket.entries()).values()]
    ready = [lease for lease in leases if lease.state is WorkerState.READY]
    served = {function for lease in ready for function in lease.functions}
    pipelines = {plan.pipeline: set(plan.functions) <= served for plan in services.client.pipelines}
    body = {
        "pipelines": {name: "ready" if able else "no worker" for name, able in pipelines.items()},
        "workers": {state.value: sum(lease.state is state for lease in leases) for state in WorkerState},
        "encoder_cache": _encoder_cache(leases),
    }
    return _health(leases, ready, list(pipelines.values())), body


def _encoder_cache(leases: list[Lease]) -> dict[str, int]:
    """What all workers found of media that were encoded before, and what is kept of them for all."""
    counted = {
        name: sum(lease.encoder_cache.get(name, 0) for lease in leases) for name in ("hits", "misses", "evicted")
    }
    kept = max(leases, key=lambda lease: lease.renewed_s, default=None)
    known = {} if kept is None else kept.encoder_cache
    return {**counted, "entries": known.get("entries", 0), "nbytes": known.get("nbytes", 0)}


def _health(leases: list[Lease], ready: list[Lease], able: list[bool]) -> Health:
    if not any(able) or not ready:
        starting = any(lease.state is WorkerState.STARTING for lease in leases)
        return Health.STARTING if starting else Health.UNHEALTHY
    if not all(able):
        return Health.DEGRADED
    slots = sum(lease.slots for lease in ready)
    return Health.BUSY if slots and sum(lease.busy for lease in ready) >= slots else Health.READY
