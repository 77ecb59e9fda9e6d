"""A real worker on its way from primed to hot: what it has and does at each step, and how long each took."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from bus import subjects
from bus.contracts import Event, Lane, Tier, WorkerState
from bus.contracts.codec import encode
from functions.leases import read_leases
from tests.delivery.host import hosting

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

MODELS = {"OMNIBUS_MODELS": os.environ["OMNIBUS_MODELS"]} if "OMNIBUS_MODELS" in os.environ else {}
FUNCTIONS = {"image.embed", "image.encode", "image.ocr", "text.embed", "tokens.encode"}


async def test_a_worker_becomes_warmer_step_by_step_and_serves_from_the_second_one_on(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    async with (
        hosting(tmp_path, functions="", pipelines=tmp_path / "pipelines", **MODELS) as host,
        asyncio.timeout(250),
    ):
        registry = await host.client.bus.bucket("workers")
        seen: list[tuple[WorkerState, set[str]]] = []
        phases: list[set[str]] = []
        pid = 0
        for tier in (Tier.PRIMED, Tier.LOADED, Tier.HOT):
            host.pool.want("encode", {tier: 1})
            (member,) = await host.pool.reach("encode")
            (lease,) = await read_leases(registry)
            assert member.tier is lease.tier is tier
            assert pid in (0, lease.pid)
            pid = lease.pid
            seen.append((lease.state, set(lease.functions)))
            phases.append(set(member.timings_s))
    assert seen == [(WorkerState.STARTING, set()), (WorkerState.READY, FUNCTIONS), (WorkerState.READY, FUNCTIONS)]
    assert phases[0] == {"start", "bus", "services"}
    assert phases[1] == phases[0] | FUNCTIONS | {"streams"}
    assert phases[2] == phases[1] | {f"{function} run" for function in FUNCTIONS}


async def test_what_somebody_waits_for_is_loaded_first(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    async with (
        hosting(tmp_path, functions="", pipelines=tmp_path / "pipelines", **MODELS) as host,
        asyncio.timeout(250),
    ):
        bus = host.client.bus
        await bus.ensure_function("text.embed")
        event = Event(
            request="waits", stage="embed", function="text.embed", pipeline="none", created_s=time.time(),
            inputs={"texts": ["first"]},
        )  # fmt: skip
        subject = subjects.work("text.embed", Lane.INTERACTIVE)
        await bus.publish(subject, encode(event), message_id=event.message_id)
        host.pool.want("encode", {Tier.LOADED: 1})
        (member,) = await host.pool.reach("encode")
        loaded = [phase for phase in member.timings_s if phase in FUNCTIONS]
    assert loaded[0] == "text.embed"
    assert set(loaded) == FUNCTIONS
