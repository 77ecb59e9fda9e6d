"""A version is switched in a real worker while clients ask: no request fails, none mixes versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from functions.client import PipelineClient
from runtime.repository import Catalog, Repository
from tests.delivery import switching
from tests.delivery.switching_worker import switching_worker
from tests.runtime.engines.small_model import install, weight

HERE = Path(switching.__file__).parent
CLIENTS = 6


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[PipelineClient]:
    """A server, a worker with tiny@1 and tiny@2, of which the first one is meant, and a client."""
    for version in "12":
        install(tmp_path / "models", version=version, seed=int(version))
    mean(tmp_path, "1")
    async with switching_worker(tmp_path, OMNIBUS_MODEL_MEMORY="1GB") as client:
        yield client


def mean(folder: Path, version: str) -> None:
    """As `omnibus models alias` does."""
    Repository(folder / "models", catalog=Catalog(())).alias("tiny", f"tiny@{version}")


def expected(value: float, version: str) -> float:
    """The sum of x · w, twice."""
    for _ in range(2):
        value = float((np.full((1, 64), value, np.float32) @ weight(seed=int(version))).sum())
    return value


async def test_no_request_fails_while_a_worker_switches_to_another_version_and_back(
    client: PipelineClient, tmp_path: Path
) -> None:
    goal = "1"
    seen: list[str] = []

    async def ask() -> str:
        async with client.submit("switching", {"value": 0.5}, timeout_s=60) as running:
            outputs = await running.outputs()
        version = str(outputs["version"]).partition("@")[2]
        assert outputs["value"] == pytest.approx(expected(0.5, version), rel=1e-3)
        seen.append(version)
        return version

    async def ask_until_switched() -> None:
        while await ask() != goal:
            pass

    for goal in ("1", "2", "1"):
        mean(tmp_path, goal)
        await asyncio.gather(*(ask_until_switched() for _ in range(CLIENTS)))
    assert {"1", "2"} == set(seen)
    assert len(seen) > 3 * CLIENTS
