"""Health from leases, on the in-memory bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from bus.contracts import Lease, WorkerState
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.store.directory import DirectoryObjectStore
from bus.tensors.plane import Plane
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.flow.plan import Plan, PlanStage, Source
from functions.gateway.app import create_app
from functions.gateway.config import GatewayConfig
from functions.gateway.services import GatewayServices
from functions.registry import Registry


def _plan(name: str, function: str) -> Plan:
    stage = PlanStage(
        name="only", function=function, inputs={"x": Source(value=1)}, upstream=(), downstream=(), live=()
    )
    return Plan(pipeline=name, inputs={}, stages=(stage,))


def _lease(worker: str, state: WorkerState, *functions: str, busy: int = 0) -> Lease:
    now = time.time()
    return Lease(
        worker=worker, group="g", host="h", pid=1, state=state, functions=functions, slots=2, busy=busy,
        started_s=now, renewed_s=now, encoder_cache={"hits": 2, "misses": 1, "entries": 5, "nbytes": 99},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("leases", "status", "health"),
    [
        ([], 503, "UNHEALTHY"),
        ([_lease("a", WorkerState.FAILED, "look", "speak")], 503, "UNHEALTHY"),
        ([_lease("a", WorkerState.STARTING, "look")], 503, "STARTING"),
        ([_lease("a", WorkerState.READY, "look")], 200, "DEGRADED"),
        ([_lease("a", WorkerState.READY, "look"), _lease("b", WorkerState.READY, "speak")], 200, "READY"),
        ([_lease("a", WorkerState.READY, "look", "speak", busy=1)], 200, "READY"),
        ([_lease("a", WorkerState.READY, "look", "speak", busy=2)], 200, "BUSY"),
        ([_lease("a", WorkerState.DRAINING, "look"), _lease("b", WorkerState.READY, "speak")], 200, "DEGRADED"),
    ],
)
async def test_health_is_told_from_the_leases(tmp_path: Path, leases: list[Lease], status: int, health: str) -> None:
    @asynccontextmanager
    async def services(_: GatewayConfig) -> AsyncIterator[GatewayServices]:
        pipelines = Pipelines([_plan("see", "look"), _plan("say", "speak")])
        async with (
            MemoryBus() as bus,
            DirectoryObjectStore(tmp_path) as store,
            PipelineClient(bus, pipelines) as client,
        ):
            workers = await bus.bucket("workers")
            for lease in leases:
                await workers.put(lease.worker, encode(lease))
            yield GatewayServices(bus=bus, store=store, tensors=Plane(store), client=client, functions=Registry())

    app = create_app(GatewayConfig(), open_services=services)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            response = await http.get("/health")
    assert (response.status_code, response.json()["status"]) == (status, health)
    cache = {"hits": 2 * len(leases), "misses": len(leases), "evicted": 0, "entries": 5, "nbytes": 99}
    assert response.json()["encoder_cache"] == (cache if leases else dict.fromkeys(cache, 0))
