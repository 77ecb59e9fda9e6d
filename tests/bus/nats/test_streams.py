"""Logs are bounded: a server that runs for long does not fill up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig, connect
from bus.nats.streams import ensure_bucket, ensure_log
from bus.subjects import BUCKETS, LOGS, result
from tests.bus.nats_server import nats_server


async def _nothing() -> None: ...


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[NatsBus]:
    """A bus whose results and cache may have 20 kB each."""
    with nats_server(tmp_path / "nats") as url:
        config = NatsConfig(url=url)
        async with NatsBus(config) as bus:
            await bus.setup()
            client = await connect(config, _nothing)
            results = next(log for log in LOGS if log.name == "RESULTS")
            await ensure_log(client, config, replace(results, max_nbytes=20_000))
            await ensure_bucket(client, config, replace(BUCKETS["cache"], max_nbytes=20_000))
            await client.close()
            yield bus


async def test_a_full_log_of_results_takes_new_ones_and_forgets_the_oldest(bus: NatsBus) -> None:
    for number in range(50):
        assert await bus.publish(result(f"r{number}"), b"x" * 1_000, message_id=f"r{number}") is True
    kept = [subject for subject, _ in await bus.history("result.*")]
    assert 10 < len(kept) < 20
    assert kept == [result(f"r{number}") for number in range(50 - len(kept), 50)]
    assert await bus.publish(result("r49"), b"another", message_id="again") is False
    assert await bus.history(result("r49")) == [(result("r49"), b"x" * 1_000)]


async def test_a_result_that_was_forgotten_on_purpose_can_be_published_again(bus: NatsBus) -> None:
    await bus.publish(result("r"), b"failed", message_id="r.end.0")
    await bus.forget(result("r"))
    assert await bus.publish(result("r"), b"succeeded", message_id="r.end.1") is True
    assert await bus.history(result("r")) == [(result("r"), b"succeeded")]


async def test_a_full_cache_forgets_the_oldest(bus: NatsBus) -> None:
    cache = await bus.bucket("cache")
    for number in range(50):
        await cache.put(f"k{number:02}", b"x" * 1_000)
    kept = sorted(await cache.entries())
    assert 10 < len(kept) < 20
    assert kept[-1] == "k49"


def test_whatever_keeps_payloads_has_a_limit() -> None:
    assert all(log.max_nbytes > 0 for log in LOGS)
    assert all(BUCKETS[name].max_nbytes > 0 for name in ("joins", "cache"))
