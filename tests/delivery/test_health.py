"""Health of a real stack in each of its states: loading, lacking a model, whole, full, stopped, replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.repository import Catalog, Repository
from tests.delivery import parted
from tests.delivery.processes import ROOT
from tests.delivery.stack import Stack, running
from tests.runtime.engines.small_model import install, weight

pytestmark = pytest.mark.timeout(120)


def stack_variables(folder: Path) -> dict[str, str]:
    return {
        "OMNIBUS_FUNCTIONS": "tests.delivery.parted", "OMNIBUS_PIPELINES": str(Path(parted.__file__).parent),
        "OMNIBUS_MODELS": str(folder / "models"), "PARTED_FOLDER": str(folder),
    }  # fmt: skip


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """One worker, whose first function is held while it is set up, and whose second one lacks its model."""
    install(tmp_path / "models", seed=1)
    (tmp_path / "hold-setup").touch()
    variables = stack_variables(tmp_path) | {"OMNIBUS_WORKERS": f"{parted.GROUP}=1"}
    async with running(tmp_path, **variables) as one:
        while "gateway http" not in one.output:
            await asyncio.sleep(0.02)
        yield one


async def health(stack: Stack, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the health door says when it first says that."""
    while True:  # the test's own limit ends it
        told: dict[str, Any] = (await stack.http.get(stack.info.gateway_url + "/health")).json()
        if "functions" in told and condition(told):
            return told
        await asyncio.sleep(0.05)


def here(state: str) -> Callable[[dict[str, Any]], bool]:
    return lambda told: bool(told["functions"]["parted.here"]["status"] == state)


async def ask(stack: Stack, name: str) -> Any:
    return await stack.http.post(f"{stack.info.gateway_url}/v1/pipelines/parted-{name}", json={"value": 0.5})


async def told_workers(stack: Stack, *options: str) -> str:
    """What `omnibus workers` prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMNIBUS_DATA": str(stack.folder / "data")}
    command = [sys.executable, "-m", "infra.cli.main", "workers", *options]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_a_worker_is_starting_degraded_ready_busy_unhealthy_and_ready_again(stack: Stack, tmp_path: Path) -> None:
    told = await health(stack, here("STARTING"))
    assert told["status"] == "STARTING"
    (tmp_path / "hold-setup").unlink()
    told = await health(stack, here("READY"))
    await stack.ready()
    assert told["workers"]["degraded"] == 1
    lacking = told["functions"]["parted.late"]
    assert (lacking["status"], lacking["error"]["code"]) == ("UNHEALTHY", "model_not_found")
    assert "parted.late cannot run [model_not_found]" in stack.output
    assert "parted.late cannot run [model_not_found]" in await told_workers(stack)
    answer = (0.5 * np.ones((1, 64), np.float32) @ weight(seed=1)).sum()
    assert (await ask(stack, "here")).json()["outputs"]["value"] == pytest.approx(answer, rel=1e-3)
    refused = await ask(stack, "late")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")

    Repository(tmp_path / "models", catalog=Catalog(())).alias("late", "tiny@1")
    told = await health(stack, lambda told: told["workers"]["ready"] == 1)
    assert told["functions"]["parted.late"]["status"] == "READY"
    assert (await ask(stack, "late")).status_code == 200
    (listed,) = json.loads(await told_workers(stack, "--json"))
    assert (listed["health"], listed["functions"]) == ("READY", ["parted.here", "parted.late"])
    assert listed["resident"].keys() == {"tiny@1"}

    (tmp_path / "hold-run").touch()
    waiting = [asyncio.ensure_future(ask(stack, "here")) for _ in range(3)]
    await health(stack, here("BUSY"))
    os.kill(listed["pid"], signal.SIGSTOP)
    await health(stack, here("UNHEALTHY"))
    (tmp_path / "hold-run").unlink()
    await health(stack, here("READY"))
    assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 3
    (listed,) = [one for one in json.loads(await told_workers(stack, "--json")) if one["health"] == "READY"]
    assert listed["functions"] == ["parted.here", "parted.late"]


async def test_a_stack_at_zero_says_why_a_group_cannot_run_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    deployment = tmp_path / "warm.yaml"
    deployment.write_text("defaults: {tier: template}")
    variables = stack_variables(tmp_path) | {"OMNIBUS_SCALE_TO_ZERO": "true", "OMNIBUS_WARM": str(deployment)}
    async with running(tmp_path, **variables) as stack:
        await stack.ready()
        for _ in range(2):
            refused = await ask(stack, "here")
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        install(tmp_path / "models", seed=1)
        while (answer := await ask(stack, "here")).status_code != 200:  # the test's own limit ends it
            assert answer.json()["error"]["code"] == "model_not_found"
        assert stack.process.poll() is None
