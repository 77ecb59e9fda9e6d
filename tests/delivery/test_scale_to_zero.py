"""A stack without workers: what is asked brings them, and quiet lets them go."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.warm import DEFAULT_MAX
from tests.delivery.processes import until
from tests.delivery.stack import Stack, running
from warmpool.adopted import COMM_PREFIX

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]


def workers(stack: Stack) -> list[str]:
    """Names of the worker processes of a stack that are something already; one waits until it is told what to be."""
    paths = (Path(f"/proc/{pid}/comm") for pid in stack.children())
    names = (path.read_text().strip().removeprefix(COMM_PREFIX) for path in paths if path.exists())
    return [name for name in names if name in ("media", "encode", "generate", "speech")]


async def test_the_first_requests_bring_workers_and_the_last_one_is_gone_when_all_is_quiet(tmp_path: Path) -> None:
    deployment = tmp_path / "warm.yaml"
    deployment.write_text("defaults: {tier: template}")  # who waits for work is a fork away
    variables = {"OMNIBUS_SCALE_TO_ZERO": "true", "OMNIBUS_WARM": str(deployment)}
    async with running(tmp_path, **variables) as stack:
        await stack.ready()
        assert workers(stack) == []
        health = await stack.http.get(f"{stack.info.gateway_url}/health")
        assert (health.status_code, health.json()["status"], health.json()["cold"]) == (200, "READY", True)
        asked = [stack.post("/v1/embeddings", json={"model": "embed", "input": f"text {index}"}) for index in range(20)]
        answers = [answer.json() for answer in await asyncio.gather(*asked)]
        assert [len(answer["data"][0]["embedding"]) for answer in answers] == [384] * 20
        assert set(workers(stack)) == {"encode"}
        assert len(workers(stack)) <= DEFAULT_MAX
        await until(lambda: not workers(stack), "the last worker to end", 120)
        again = await _later(stack, {"model": "embed", "input": "text 0"})
        vector = np.frombuffer(base64.urlsafe_b64decode(again["vectors"]["inline"]), np.float32)
        assert vector.tolist() == pytest.approx(answers[0]["data"][0]["embedding"], abs=1e-5)


async def _later(stack: Stack, body: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a request that nobody waits for: it lies on the bus until somebody starts its pipeline."""
    url = f"{stack.info.gateway_url}/v1/embeddings"
    accepted = await stack.http.post(url, json=body, headers={"prefer": "respond-async"})
    assert accepted.status_code == 202, accepted.text
    while True:  # the test's own limit ends it
        told = (await stack.http.get(stack.info.gateway_url + accepted.headers["location"])).json()
        if told["status"] not in ("queued", "running"):
            outputs: dict[str, Any] = told["outputs"]
            return outputs
        await asyncio.sleep(0.05)
