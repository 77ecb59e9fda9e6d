"""Two process trees on one nats-server: from nothing, shared, taken over, and back to nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import tests.delivery.functions  # noqa: F401 - registers the functions
from bus.contracts import Result, ResultStatus
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.leases import read_capacities
from functions.registry import registry
from infra.local.nats_server import NatsServer
from tests.delivery.processes import omnibus, runs, until

HERE = Path(__file__).parent

pytestmark = pytest.mark.timeout(240)


@dataclass
class Hosts:
    folder: Path
    client: PipelineClient
    pools: list[subprocess.Popen[bytes]]

    async def ask(self, number: int) -> Result:
        async with self.client.submit("chain", {"number": number}) as running:
            return await running.result()

    def workers(self, pool: subprocess.Popen[bytes]) -> int:
        """Living workers of a pool: it has adopted them."""
        names = []
        for path in Path(f"/proc/{pool.pid}/task").glob("*/children"):
            for pid in path.read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                    names.append(Path(f"/proc/{pid}/comm").read_text().strip())
        return names.count("omnibus-chain")

    def counts(self) -> list[int]:
        return [self.workers(pool) for pool in self.pools]


@asynccontextmanager
async def two_hosts(folder: Path, *groups: str) -> AsyncIterator[Hosts]:
    (folder / "nats").mkdir()
    warm = folder / "warm.yaml"
    warm.write_text("defaults: {tier: template, max: 2, target_wait_ms: 0}", encoding="utf-8")
    with ExitStack() as stack:
        async with (
            NatsServer(folder / "nats", folder) as server,
            NatsBus(NatsConfig(url=server.url, token=server.token, ack_wait_s=1)) as bus,
        ):
            await bus.setup()
            variables = {
                "OMNIBUS_NATS_URL": server.url, "OMNIBUS_NATS_TOKEN": server.token, "OMNIBUS_ACK_WAIT_S": "1",
                "OMNIBUS_FUNCTIONS": "tests.delivery.functions", "OMNIBUS_PIPELINES": str(HERE),
                "OMNIBUS_STORE_URL": (folder / "store").as_uri(), "OMNIBUS_WARM": str(warm),
                "OMNIBUS_WORKERS": "chain=0", "CHAIN_FOLDER": str(folder),
            }  # fmt: skip
            pools = [
                stack.enter_context(
                    omnibus(
                        "pool", *group, log=folder / f"pool-{name}.log", OMNIBUS_DATA=str(folder / name), **variables
                    )
                )
                for name, group in zip("ab", [["--group", group] for group in groups] or [[], []], strict=True)
            ]
            async with PipelineClient(bus, Pipelines.load(registry, [HERE])) as client:
                bucket = await bus.bucket("pools")
                async with asyncio.timeout(60):
                    while len(await read_capacities(bucket)) < 2:
                        await asyncio.sleep(0.02)
                yield Hosts(folder, client, pools)


async def test_two_hosts_start_share_take_over_and_go_back_to_nothing(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as hosts:
        assert hosts.counts() == [0, 0]
        assert (await hosts.ask(1)).status is ResultStatus.SUCCEEDED
        assert sorted(hosts.counts()) in ([0, 0], [0, 1])  # the work of one
        await until(lambda: hosts.counts() == [0, 0], "the workers to end", 90)

        (tmp_path / "hold-two").touch()
        asked = [asyncio.create_task(hosts.ask(number)) for number in range(100)]  # of 64 slots each
        await until(lambda: hosts.counts() == [1, 1], "both hosts to work", 60)
        await until(lambda: len(runs(tmp_path, "two")) >= 70, "the second stage to run on both", 60)
        lost, left = hosts.pools
        lost.send_signal(signal.SIGKILL)
        lost.wait()
        (tmp_path / "hold-two").unlink()
        results = await asyncio.gather(*asked)
        assert {result.status for result in results} == {ResultStatus.SUCCEEDED}
        assert sorted(result.outputs["number"] for result in results) == list(range(3, 103))
        await until(lambda: hosts.workers(left) == 0, "the last worker to end", 90)


async def test_a_pool_for_some_groups_leaves_the_others_to_other_pools(tmp_path: Path) -> None:
    async with two_hosts(tmp_path, "media", "chain") as hosts:
        (tmp_path / "hold-two").touch()
        asked = [asyncio.create_task(hosts.ask(number)) for number in range(100)]  # more than a worker has slots for
        await until(lambda: hosts.counts() == [0, 2], "the second host to work, with as many as there may be", 60)
        (tmp_path / "hold-two").unlink()
        assert {result.status for result in await asyncio.gather(*asked)} == {ResultStatus.SUCCEEDED}
        assert hosts.counts()[0] == 0


async def test_a_group_that_no_function_is_in_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    async with NatsServer(tmp_path / "nats", tmp_path) as server:
        settings = {"OMNIBUS_NATS_URL": server.url, "OMNIBUS_NATS_TOKEN": server.token, "OMNIBUS_DATA": str(tmp_path)}
        log = tmp_path / "pool.log"
        with omnibus("pool", "--group", "ears", log=log, **settings) as pool:
            assert await asyncio.to_thread(pool.wait) == 1
        assert "no function is in group ears; groups: encode, generate, media, speech" in log.read_text()
