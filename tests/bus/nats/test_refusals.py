"""What JetStream refuses for now may be tried again; what it refuses for good may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import BusError, BusUnavailableError, InvalidInputError, OmnibusError, StackConfigError
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig, connect
from bus.nats.streams import request
from tests.bus.nats_server import nats_server


async def _nothing() -> None: ...


async def test_a_bucket_without_room_is_an_error_that_may_pass(tmp_path: Path) -> None:
    with nats_server(tmp_path / "nats") as url:
        async with NatsBus(NatsConfig(url=url)) as bus:
            await bus.setup()
            client = await connect(NatsConfig(url=url), on_reconnect=_nothing)
            config = (await request(client, "STREAM.INFO.KV_requests", {}))["config"]
            await request(client, "STREAM.UPDATE.KV_requests", {**config, "max_bytes": 100})
            with pytest.raises(BusUnavailableError) as passing:
                await (await bus.bucket("requests")).put("key", b"x" * 200)
            assert passing.value.retryable
            with pytest.raises(BusError, match="stream name") as final:
                await request(client, "STREAM.CREATE.a", {"name": "b"})
            assert not final.value.retryable
            await client.close()


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        (NatsConfig(credentials="/nowhere/user.creds"), StackConfigError, "/nowhere/user.creds"),
        (NatsConfig(url="::no url::"), BusError, "::no url::"),
        (NatsConfig(url="nats://127.0.0.1:1", connect_timeout_s=0.2), BusUnavailableError, "127.0.0.1:1"),
    ],
)
async def test_a_connection_that_cannot_be_made_says_what_is_wrong(
    config: NatsConfig, kind: type[OmnibusError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        async with NatsBus(config):
            pass


async def test_a_password_in_the_url_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    config = NatsConfig(url="nats://me:hunter2@127.0.0.1:1,nats://me:hunter2@127.0.0.1:2", connect_timeout_s=0.2)
    with pytest.raises(BusUnavailableError, match=r"nats://127\.0\.0\.1:1,nats://127\.0\.0\.1:2") as caught:
        async with NatsBus(config):
            pass
    assert "hunter2" not in f"{config} {caught.value} {caught.value.details} {caplog.text}"


async def test_a_name_that_is_too_long_for_the_bus_costs_nobody_the_connection(tmp_path: Path) -> None:
    long = "a" * 5_000
    with nats_server(tmp_path / "nats") as url:
        async with NatsBus(NatsConfig(url=url)) as bus:
            await bus.setup()
            plans = await bus.bucket("plans")
            for asking in (
                plans.get(long),
                plans.put(long, b"value"),
                bus.publish(f"dlq.{long}", b"letter", message_id="1"),
                bus.broadcast(f"token.{long}", b"token"),
                bus.listen(f"result.{long}", lambda *message: None),
            ):
                with pytest.raises(InvalidInputError, match="over the 2048 that the bus takes"):
                    await asking
            assert await plans.put("a" * 900, b"value")
