"""Health from leases, on the in-memory bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest

from bus.contracts import Capacity, Contract, ErrorRecord, FunctionStatus, GroupCapacity, Lease, WorkerState
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.store.directory import DirectoryObjectStore
from bus.tensors.plane import Plane
from functions.client import PipelineClient
from functions.context import Context
from functions.flow.catalog import Pipelines
from functions.flow.plan import Plan, PlanStage, Source
from functions.gateway.app import create_app
from functions.gateway.config import GatewayConfig
from functions.gateway.services import GatewayServices
from functions.registry import Registry
from functions.spec import FunctionSpec


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
    found, told = await _ask(tmp_path, leases)
    assert (found, told["status"]) == (status, health)
    cache = {"hits": 2 * len(leases), "misses": len(leases), "evicted": 0, "entries": 5, "nbytes": 99}
    assert told["encoder_cache"] == (cache if leases else dict.fromkeys(cache, 0))


async def test_what_a_pool_starts_when_it_is_asked_is_ready_and_cold(tmp_path: Path) -> None:
    groups = {"eyes": GroupCapacity(alive=0, running=0), "voice": GroupCapacity(alive=0, running=0, most=0)}
    pool = Capacity(host="h", room_nbytes=1, groups=groups, renewed_s=time.time())
    newer = {**msgpack.unpackb(encode(pool)), "host": "i", "schema": "omnibus.capacity/2"}
    status, told = await _ask(tmp_path, [], [encode(pool), msgpack.packb(newer)])
    assert (status, told["status"], told["cold"]) == (200, "DEGRADED", False)
    assert told["functions"] == {
        "look": {"status": "READY", "cold": True, "workers": 0},
        "speak": {"status": "UNHEALTHY", "cold": False, "workers": 0},
    }
    assert told["pipelines"] == {"see": "ready", "say": "no worker"}


async def test_why_a_function_cannot_run_is_told(tmp_path: Path) -> None:
    error = ErrorRecord(code="model_not_found", message="no model 'voice' is installed")
    worker = _lease("a", WorkerState.READY, "look").model_copy(
        update={"status": {"speak": FunctionStatus(error=error)}}
    )
    status, told = await _ask(tmp_path, [worker])
    assert (status, told["status"]) == (200, "DEGRADED")
    assert told["functions"]["speak"] == {
        "status": "UNHEALTHY", "cold": False, "workers": 0,
        "error": {"code": "model_not_found", "message": "no model 'voice' is installed"},
    }  # fmt: skip
    assert told["workers"] == {"starting": 0, "ready": 0, "busy": 0, "degraded": 1, "unhealthy": 0}


async def _ask(folder: Path, leases: list[Lease], pools: Sequence[bytes] = ()) -> tuple[int, dict[str, Any]]:
    """Status and body of the health of two pipelines."""
    functions = Registry()
    for name, group in (("look", "eyes"), ("speak", "voice")):
        functions.add(FunctionSpec(name=name, inputs=Contract, outputs=Contract, handler=_handle, group=group))

    @asynccontextmanager
    async def services(_: GatewayConfig) -> AsyncIterator[GatewayServices]:
        pipelines = Pipelines([_plan("see", "look"), _plan("say", "speak")])
        async with (
            MemoryBus() as bus,
            DirectoryObjectStore(folder) as store,
            PipelineClient(bus, pipelines) as client,
        ):
            workers, hosts = await bus.bucket("workers"), await bus.bucket("pools")
            for lease in leases:  # as if renewed just now
                await workers.put(lease.worker, encode(lease.model_copy(update={"renewed_s": time.time()})))
            for number, pool in enumerate(pools):
                await hosts.put(str(number), pool)
            yield GatewayServices(bus=bus, store=store, tensors=Plane(store), client=client, functions=functions)

    app = create_app(GatewayConfig(), open_services=services)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            response = await http.get("/health")
    return response.status_code, response.json()


async def _handle(context: Context[Any], inputs: Contract) -> Contract:
    return inputs
