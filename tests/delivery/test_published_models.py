"""A host that starts with an empty models folder serves what was published to an object store."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bus import subjects
from bus.contracts import WorkerState
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.store.location import open_bucket
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.leases import read_leases
from functions.registry import registry
from infra.local.nats_server import NatsServer
from runtime.repository import Catalog, Repository
from runtime.repository.published import publish
from tests.bus.store.s3_server import s3_server
from tests.delivery import switching
from tests.delivery.processes import omnibus
from tests.delivery.test_switching import expected
from tests.runtime.engines.small_model import install

HERE = Path(switching.__file__).parent


async def test_a_worker_without_models_fetches_them_from_the_store_and_answers(tmp_path: Path) -> None:
    install(tmp_path / "built", version="1", seed=1)
    (tmp_path / "nats").mkdir()
    with s3_server() as endpoint:
        place = f"s3://models/team?endpoint=http://{endpoint}"
        store = open_bucket(place, access_key="access", secret_key="secret")
        store.ensure()
        publish(Repository(tmp_path / "built", catalog=Catalog(())), "tiny", store)
        store.close()
        shutil.rmtree(tmp_path / "built")
        async with (
            NatsServer(tmp_path / "nats", tmp_path) as server,
            NatsBus(NatsConfig(url=server.url, token=server.token)) as bus,
        ):
            await bus.setup()
            for name in ("switching.first", "switching.second", subjects.START_FUNCTION):
                await bus.ensure_function(name)
            with omnibus(
                "worker", "--group", switching.GROUP, log=tmp_path / "worker.log",
                OMNIBUS_NATS_URL=server.url, OMNIBUS_NATS_TOKEN=server.token, OMNIBUS_DATA=str(tmp_path / "data"),
                OMNIBUS_MODELS=str(tmp_path / "models"), OMNIBUS_MODELS_FROM=place,
                OMNIBUS_STORE_ACCESS_KEY="access", OMNIBUS_STORE_SECRET_KEY="secret",
                OMNIBUS_FUNCTIONS="tests.delivery.switching", OMNIBUS_PIPELINES=str(HERE),
            ) as worker:  # fmt: skip
                workers = await bus.bucket("workers")
                while not any(lease.state is WorkerState.READY for lease in await read_leases(workers)):
                    assert worker.poll() is None, (tmp_path / "worker.log").read_text()
                    await asyncio.sleep(0.02)
                async with (
                    PipelineClient(bus, Pipelines.load(registry, [HERE])) as client,
                    client.submit("switching", {"value": 0.5}, timeout_s=60) as running,
                ):
                    outputs = await running.outputs()
    assert outputs["version"] == "tiny@1"
    assert outputs["value"] == pytest.approx(expected(0.5, "1"), rel=1e-3)
