"""`/health`: what this deployment can do now, told from the workers' leases."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from bus.contracts import Lease
from bus.errors import OmnibusError
from functions.gateway.patience import in_time
from functions.gateway.services import GatewayServices, services_of
from functions.health import FunctionHealth, Health, function_health, total_health, worker_health
from functions.leases import read_capacities, read_leases

router = APIRouter(tags=["health"])


@router.get("/health")
async def read_health(request: Request) -> Response:
    """STARTING or UNHEALTHY with 503; READY, BUSY (every slot taken) or DEGRADED (some of it fails) with 200.

    Of each function, too, with `cold` where no worker is there and one is started when something is asked: it is READY,
    as a service that is scaled to zero is for Kubernetes.
    """
    try:
        async with in_time("the state of workers", "look at the bus, its log and its network"):
            health, body = await _look(services_of(request))
    except OmnibusError as error:
        health, body = Health.UNHEALTHY, {"reason": error.message}
    status = 200 if health.answers else 503
    return Response(to_json({"status": health, **body}), status, media_type="application/json")


async def _look(services: GatewayServices) -> tuple[Health, dict[str, Any]]:
    workers, pools = await asyncio.gather(services.bus.bucket("workers"), services.bus.bucket("pools"))
    leases, capacities = await asyncio.gather(read_leases(workers), read_capacities(pools))
    pooled = {name for one in capacities for name, group in one.groups.items() if group.most > 0}
    groups = {spec.name: spec.group for spec in services.functions}
    needed = {plan.pipeline: set(plan.functions) for plan in services.client.pipelines}
    now_s = time.time()
    functions = {
        name: function_health(name, groups.get(name), leases, now_s, pooled=groups.get(name) in pooled)
        for name in sorted(set().union(*needed.values()))
    }
    states = [worker_health(lease, now_s) for lease in leases]
    body = {
        "cold": all(one.cold for one in functions.values()),
        "functions": {name: _told(one) for name, one in functions.items()},
        "pipelines": {
            name: "ready" if all(functions[one].state.answers for one in names) else "no worker"
            for name, names in needed.items()
        },
        "workers": {state.value.lower(): states.count(state) for state in Health},
        "encoder_cache": _encoder_cache(leases),
    }
    return total_health(functions, needed.values()), body


def _told(function: FunctionHealth) -> dict[str, Any]:
    told: dict[str, Any] = {"status": function.state, "cold": function.cold, "workers": function.workers}
    if function.error is not None:
        told["error"] = {"code": function.error.code, "message": function.error.message}
    return told


def _encoder_cache(leases: list[Lease]) -> dict[str, int]:
    """What all workers found of media that were encoded before, and what is kept of them for all."""
    counted = {
        name: sum(lease.encoder_cache.get(name, 0) for lease in leases) for name in ("hits", "misses", "evicted")
    }
    kept = max(leases, key=lambda lease: lease.renewed_s, default=None)
    known = {} if kept is None else kept.encoder_cache
    return {**counted, "entries": known.get("entries", 0), "nbytes": known.get("nbytes", 0)}
