"""`/v1/scaling`: how many workers of each group there should be, for an autoscaler outside.

KEDA's `metrics-api` trigger reads one number: `url: …/v1/scaling/encode`, `valueLocation: workers`, `targetValue: "1"`.
Its `cooldownPeriod` is the keep-alive. An error is no number: KEDA and the HPA behind it leave everything as it is.
`max` and `min` are of all hosts together, as KEDA's `maxReplicaCount` and `minReplicaCount` are.

Source: KEDA 2.x documentation, "Metrics API" scaler; its HTTP timeout is 3 s by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request

from bus.contracts import WorkerState
from bus.errors import UnknownFunctionError
from bus.subjects import START_FUNCTION
from functions.deployment import Deployment, group_settings, read_deployment, starting_group
from functions.flow.start import SLOTS
from functions.gateway.patience import in_time
from functions.gateway.services import GatewayServices, config_of, services_of
from functions.leases import read_capacities, read_leases
from functions.spec import FunctionSpec
from functions.staffing import USUAL_SERVICE_S, for_backlog
from functions.warm import WarmSpec

router = APIRouter(tags=["health"])

_UNKNOWN = ("the backlog", "keep what there is")
_ALIVE = (WorkerState.STARTING, WorkerState.READY)


@router.get("/v1/scaling")
async def read_scaling(request: Request) -> dict[str, Any]:
    """Every group of functions: requests that run or wait, workers that there should be and those that there are.

    Raises:
        BusUnavailableError: (retryable) the backlog is not known.
    """
    groups = await _groups(request)
    async with in_time(*_UNKNOWN):
        told = await asyncio.gather(*(_tell(services_of(request), group) for group in groups.values()))
    return {"groups": dict(zip(groups, told, strict=True))}


@router.get("/v1/scaling/{group}")
async def read_group(group: str, request: Request) -> dict[str, Any]:
    """One group of functions.

    Raises:
        UnknownFunctionError: No function is in a group of that name.
        BusUnavailableError: (retryable) the backlog is not known.
    """
    groups = await _groups(request)
    if group not in groups:
        raise UnknownFunctionError(f"no function is in group {group!r}; groups: {', '.join(groups)}", group=group)
    async with in_time(*_UNKNOWN):
        return await _tell(services_of(request), groups[group])


class _Group(NamedTuple):
    specs: Sequence[FunctionSpec]
    warm: WarmSpec
    starts: bool
    """Whether it is its worker that starts pipelines while none is there."""


async def _groups(request: Request) -> dict[str, _Group]:
    specs = list(services_of(request).functions)
    path = config_of(request).warm
    deployment = Deployment() if path is None else await asyncio.to_thread(read_deployment, path, specs)
    settings = group_settings(specs, deployment)
    starting = starting_group(specs, settings)
    return {
        name: _Group([spec for spec in specs if spec.group == name], settings[name], starts=name == starting)
        for name in sorted(settings)
    }


async def _tell(services: GatewayServices, group: _Group) -> dict[str, Any]:
    name, warm = group.specs[0].group, group.warm
    leases = await read_leases(await services.bus.bucket("workers"))
    slots = {spec.name: spec.slots for spec in group.specs}
    if group.starts and not any(lease.state is WorkerState.READY for lease in leases):
        slots[START_FUNCTION] = SLOTS  # else whoever is there does it
    backlogs = await asyncio.gather(*(services.bus.backlog(function) for function in slots))
    waiting = [sum(pending for pending, _ in lanes.values()) for lanes in backlogs]
    running = [sum(in_flight for _, in_flight in lanes.values()) for lanes in backlogs]
    service_s = await _service_s(services, name)
    needed = max(  # a worker has the slots of each of its functions
        for_backlog(pending + in_flight, each, service_s, warm.target_wait_ms / 1e3)
        for each, pending, in_flight in zip(slots.values(), waiting, running, strict=True)
    )
    return {
        "waiting": sum(waiting),
        "running": sum(running),
        "workers": min(warm.max, max(warm.min, needed)),
        "alive": sum(lease.group == name and lease.state in _ALIVE for lease in leases),
    }


async def _service_s(services: GatewayServices, group: str) -> float:
    """How long a request of the group runs, as the pools have measured it."""
    told = [one.groups.get(group) for one in await read_capacities(await services.bus.bucket("pools"))]
    measured = [one.service_s for one in told if one is not None and one.service_s]
    return sum(measured) / len(measured) if measured else USUAL_SERVICE_S
