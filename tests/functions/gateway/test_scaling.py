"""What an autoscaler outside is told, on the in-memory bus."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from bus.contracts import Capacity, Contract, GroupCapacity, Lane, Lease, WorkerState
from bus.contracts.codec import encode
from bus.memory import MemoryBus
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import Bus, Delivery, Settlement
from bus.store.directory import DirectoryObjectStore
from bus.subjects import START_FUNCTION, work
from bus.tensors.plane import Plane
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.gateway.app import create_app
from functions.gateway.config import GatewayConfig
from functions.gateway.services import GatewayServices
from functions.registry import Registry
from functions.spec import FunctionSpec
from functions.warm import WarmSpec
from tests.bus.nats_server import nats_server


class Nothing(Contract):
    pass


async def handler(context: object, inputs: Nothing) -> Nothing:
    return inputs


def registry() -> Registry:
    functions = Registry()
    for name, group, warm in (
        ("look", "encode", WarmSpec(max=3, target_wait_ms=0)),
        ("read", "encode", WarmSpec(max=3)),
        ("say", "speech", WarmSpec(min=1)),
    ):
        functions.add(FunctionSpec(name=name, inputs=Nothing, outputs=Nothing, handler=handler, group=group, warm=warm))
    return functions


@asynccontextmanager
async def gateway(folder: Path, bus: Bus, config: GatewayConfig | None = None) -> AsyncIterator[httpx.AsyncClient]:
    functions = registry()

    @asynccontextmanager
    async def services(_: GatewayConfig) -> AsyncIterator[GatewayServices]:
        async with DirectoryObjectStore(folder) as store, PipelineClient(bus, Pipelines([])) as client:
            for spec in functions:
                await bus.ensure_function(spec.name)
            yield GatewayServices(bus=bus, store=store, tensors=Plane(store), client=client, functions=functions)

    app = create_app(config or GatewayConfig(), open_services=services)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield http


async def ask(bus: MemoryBus, function: str, count: int) -> None:
    for number in range(count):
        await bus.publish(work(function, Lane.INTERACTIVE), b"", message_id=f"{function}-{number}")


async def test_without_work_there_is_to_be_the_least(tmp_path: Path) -> None:
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        told = (await http.get("/v1/scaling")).json()
    nothing = {"waiting": 0, "running": 0, "workers": 0, "alive": 0}
    assert told == {"groups": {"encode": nothing, "speech": {**nothing, "workers": 1}}}


async def test_the_number_that_keda_reads_follows_the_backlog(tmp_path: Path) -> None:
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        workers = []
        for count in (1, 5, 100):
            await ask(bus, "look", count)
            workers.append((await http.get("/v1/scaling/encode")).json()["workers"])
    assert workers == [1, 2, 3]  # four slots each, and three at most


async def test_pipelines_that_are_to_be_started_bring_one_worker_where_there_is_none(tmp_path: Path) -> None:
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        await bus.ensure_function(START_FUNCTION)
        await ask(bus, START_FUNCTION, 3)
        told = (await http.get("/v1/scaling")).json()["groups"]
        assert (told["speech"]["waiting"], told["encode"]["waiting"]) == (3, 0)  # of what is always there
        assert (told["speech"]["workers"], told["encode"]["workers"]) == (1, 0)
        lease = Lease(
            worker="a", group="encode", host="h", pid=1, state=WorkerState.READY, functions=(), started_s=time.time(),
            renewed_s=time.time(),
        )  # fmt: skip
        await (await bus.bucket("workers")).put("a", encode(lease))
        assert (await http.get("/v1/scaling/speech")).json()["waiting"] == 0  # it starts them


async def test_what_runs_counts_as_well_as_what_waits(tmp_path: Path) -> None:
    taken: list[Settlement] = []

    async def hold(delivery: Delivery, settlement: Settlement) -> None:
        taken.append(settlement)

    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        await ask(bus, "look", 5)
        consumer = await bus.serve("look", 3, hold)
        told = (await http.get("/v1/scaling/encode")).json()
        await consumer.close()
    assert told["waiting"] + told["running"] == 5
    assert told["workers"] == 2


async def test_slow_requests_need_more_workers(tmp_path: Path) -> None:
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        await ask(bus, "say", 8)
        usual = (await http.get("/v1/scaling/speech")).json()["workers"]
        groups = {"speech": GroupCapacity(alive=0, running=0, service_s=30.0)}
        told = Capacity(host="h", room_nbytes=1, groups=groups, renewed_s=0.0)
        await (await bus.bucket("pools")).put("h", encode(told))
        await (await bus.bucket("pools")).put("newer", b"of a version that this one does not read")
        slow = (await http.get("/v1/scaling/speech")).json()["workers"]
    assert (usual, slow) == (1, 2)  # at half a second each slot takes two in time, at thirty seconds one


async def test_workers_that_live_are_counted(tmp_path: Path) -> None:
    now = time.time()
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        bucket = await bus.bucket("workers")
        for name, state in (("a", WorkerState.READY), ("b", WorkerState.STARTING), ("c", WorkerState.FAILED)):
            lease = Lease(
                worker=name, group="encode", host="h", pid=1, state=state, functions=(), started_s=now, renewed_s=now
            )
            await bucket.put(name, encode(lease))
        assert (await http.get("/v1/scaling/encode")).json()["alive"] == 2


async def test_the_deployment_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "warm.yaml"
    file.write_text("functions: {say: {cold_start_opt: 'warm_pool:4'}}", encoding="utf-8")
    async with MemoryBus() as bus, gateway(tmp_path, bus, GatewayConfig(warm=file)) as http:
        assert (await http.get("/v1/scaling/speech")).json()["workers"] == 4


async def test_a_group_that_is_none_is_told_with_those_that_are(tmp_path: Path) -> None:
    async with MemoryBus() as bus, gateway(tmp_path, bus) as http:
        response = await http.get("/v1/scaling/encoder")
    assert response.status_code == 404
    assert "groups: encode, speech" in response.json()["error"]["message"]


async def test_a_bus_that_is_gone_is_an_error_that_says_when_to_ask_again(tmp_path: Path) -> None:
    """And not a number: nobody is to be started or stopped for want of knowledge."""
    async with AsyncExitStack() as stack:
        with nats_server(tmp_path / "nats") as url:
            bus = await stack.enter_async_context(NatsBus(NatsConfig(url=url)))
            await bus.setup()
            http = await stack.enter_async_context(gateway(tmp_path / "objects", bus))
            assert (await http.get("/v1/scaling/encode")).json()["workers"] == 0
        for path in ("/v1/scaling/encode", "/v1/scaling"):
            response = await http.get(path)
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["code"] == "bus_unavailable"
            assert response.json()["error"]["retryable"]
        response = await http.get("/health")
        assert (response.status_code, response.json()["status"]) == (503, "UNHEALTHY")
        assert "the bus has not answered within 2 s" in response.json()["reason"]
