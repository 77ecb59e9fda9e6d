"""Models that vanish, disks that are full and memory that is not there: who can serve serves, and comes back."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from bus.contracts import ResultStatus, Tier
from functions.running import outputs_of
from runtime.repository import Catalog, Repository
from tests.delivery import switching
from tests.delivery.host import Host, hosting, poison_workers
from tests.delivery.processes import until
from tests.delivery.test_switching import expected
from tests.runtime.engines.small_model import install


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Any]:
    """A small model, and what a host of its functions needs."""
    install(tmp_path / "models", version="1", seed=1)
    Repository(tmp_path / "models", catalog=Catalog(())).alias("tiny", "tiny@1")
    return {
        "functions": "tests.delivery.switching",
        "pipelines": Path(switching.__file__).parent,
        "OMNIBUS_MODELS": str(tmp_path / "models"),
        "OMNIBUS_MODEL_MEMORY": "1GB",
    }


async def answer(host: Host) -> float:
    async with host.client.submit("switching", {"value": 0.5}, timeout_s=60) as running:
        return float(outputs_of(await running.result())["value"])


async def test_a_group_whose_model_vanishes_is_tried_again_until_it_is_back(
    tmp_path: Path, models: dict[str, Any]
) -> None:
    async with hosting(tmp_path, **models) as host:
        host.pool.want(switching.GROUP, {Tier.LOADED: 1})
        await host.pool.reach(switching.GROUP)
        assert await answer(host) == pytest.approx(expected(0.5, "1"), rel=1e-3)
        failed = asyncio.ensure_future(host.pool.failed())
        shutil.move(tmp_path / "models" / "tiny", tmp_path / "away")
        os.kill(host.pool.pids["switching-0"], signal.SIGKILL)
        log = tmp_path / "switching-0.log"
        await until(lambda: log.read_text().count("did not start") >= 3, "three failures")
        late = asyncio.ensure_future(answer(host))
        assert not failed.done()
        shutil.move(tmp_path / "away", tmp_path / "models" / "tiny")
        assert await late == pytest.approx(expected(0.5, "1"), rel=1e-3)
        failed.cancel()


async def test_a_disk_without_room_costs_the_saved_graph_and_no_answer(tmp_path: Path, models: dict[str, Any]) -> None:
    async with hosting(tmp_path, **models, OMNIBUS_GRAPHS=str(tmp_path / "graphs")) as host:
        starter: Any = host.pool.starter
        await starter.forker.told()
        # No file of the workers grows beyond this; like a full disk, it fails the write.
        resource.prlimit(starter.forker.pid, resource.RLIMIT_FSIZE, (512, 512))
        host.pool.want(switching.GROUP, {Tier.LOADED: 1})
        await host.pool.reach(switching.GROUP)
        assert await answer(host) == pytest.approx(expected(0.5, "1"), rel=1e-3)
        assert not [path for path in (tmp_path / "graphs").rglob("*") if path.is_file() and path.stat().st_size > 512]


async def test_a_run_that_gets_no_memory_fails_alone(tmp_path: Path) -> None:
    async with poison_workers(tmp_path) as host:
        pid = host.pool.pids["poison-0"]
        (tmp_path / "hold").touch()
        waiting = host.start(do="hold")
        await until(lambda: len(host.runs) == 1, "the neighbour's run")
        resource.prlimit(pid, resource.RLIMIT_AS, (8 << 30, 8 << 30))
        result = await host.ask(do="swallow")
        assert result.error is not None
        assert (result.error.code, result.error.retryable) == ("overloaded", True)
        assert "no memory left; send less" in result.error.message
        (tmp_path / "hold").unlink()
        assert (await waiting).status is ResultStatus.SUCCEEDED
        assert {run[2] for run in host.runs} == {pid}
