"""What functions need on the bus is made once, and again where it is gone or is to be otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus.nats.bus import NatsBus
from bus.nats.connection import Client, NatsConfig, connect
from bus.nats.streams import request
from functions.flow.catalog import Pipelines, PlanCache
from tests.bus.nats_server import nats_server
from tests.functions.words import DIAMOND, Log, word_functions
from warmpool.streams import make_streams


class World:
    """A bus, what a deployment needs on it, and a client that asks the server behind our back."""

    def __init__(self, bus: NatsBus, config: NatsConfig, client: Client, pipelines: Pipelines) -> None:
        self.bus, self.config, self.client, self.pipelines = bus, config, client, pipelines

    async def make(self, config: NatsConfig | None = None) -> None:
        await make_streams(self.bus, config or self.config, self.pipelines, ())

    async def ask(self, operation: str, **body: Any) -> dict[str, Any]:
        return await request(self.client, operation, body)

    async def lanes(self) -> dict[str, int]:
        streams = (await self.ask("STREAM.LIST", subject="fn.>"))["streams"] or ()
        return {one["config"]["name"]: one["state"]["consumer_count"] for one in streams}


async def _nothing() -> None: ...


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    (tmp_path / "diamond.yaml").write_text(yaml.safe_dump(DIAMOND))
    pipelines = Pipelines.load(word_functions(Log()), [tmp_path])
    with nats_server(tmp_path / "nats") as url:
        config = NatsConfig(url=url)
        client = await connect(config, on_reconnect=_nothing)
        async with NatsBus(config) as bus:
            await bus.setup()
            yield World(bus, config, client, pipelines)
        await client.close()


async def test_plans_and_streams_are_there_when_they_have_been_made(world: World) -> None:
    await world.make()
    assert set((await world.lanes()).values()) == {3}
    plan = world.pipelines.get("diamond")
    assert len(await world.lanes()) == len({*plan.functions, "pipeline.start"})
    assert await PlanCache(await world.bus.bucket("plans")).get(plan.digest) == plan


async def test_what_has_been_made_is_not_made_again(world: World) -> None:
    await world.make()
    before = (await world.ask("STREAM.INFO.KV_plans"))["state"]["last_seq"]
    await world.make()
    assert (await world.ask("STREAM.INFO.KV_plans"))["state"]["last_seq"] == before


async def test_a_stream_or_a_lane_that_an_operator_has_removed_is_made_again(world: World) -> None:
    await world.make()
    whole = await world.lanes()
    await world.ask("STREAM.DELETE.FN_pipeline_start")
    await world.make()
    assert await world.lanes() == whole
    await world.ask("CONSUMER.DELETE.FN_pipeline_start.batch")
    await world.make()
    assert await world.lanes() == whole


async def test_streams_are_made_again_where_they_are_to_be_otherwise(world: World) -> None:
    await world.make()
    patient = replace(world.config, ack_wait_s=77.0)
    async with NatsBus(patient) as bus:
        await make_streams(bus, patient, world.pipelines, ())
    found = await world.ask("CONSUMER.INFO.FN_pipeline_start.interactive")
    assert found["config"]["ack_wait"] == 77_000_000_000
