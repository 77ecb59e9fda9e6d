"""The embedded stack with the real models: killed stage by stage, stopped, killed whole, started again."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.running import outputs_of
from infra.local.folder import find_stack
from runtime.repository import Repository
from tests.delivery.processes import alive, runs, until
from tests.delivery.stack import Stack, running
from tests.made.films import film
from tests.made.sounds import tone

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

STAGES = (
    *("fetch", "pixels", "look", "waves", "listen", "frames", "watch", "overhear"),
    *("fuse", "generate", "speak", "assemble"),
)


async def multimodal_question(stack: Stack) -> dict[str, Any]:
    """A chat body with a photo, a spoken question and a film with sound."""
    repository = Repository()
    photo = repository.file(repository.resolve("cat-photo"), "chelsea.png").read_bytes()
    speech = {"model": "tts", "input": "What animal is in this picture?", "voice": "af_heart"}
    spoken = (await stack.post("/v1/audio/speech", json=speech)).content
    clip = film([0.0, 0.5, 1.0], samples=tone(440, 1.0, 16_000))
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(photo).decode()}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + base64.b64encode(clip).decode()}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(spoken).decode(), "format": "wav"}},
    ]
    return {
        "model": "chat",
        "messages": [{"role": "user", "content": parts}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "af_heart", "format": "wav"},
        "max_tokens": 24,
    }


async def test_a_worker_killed_in_the_middle_of_each_stage_changes_nothing_in_the_answer(tmp_path: Path):
    chaos = {"OMNIBUS_FUNCTIONS": "tests.delivery.chaos", "CHAOS_FOLDER": str(tmp_path)}
    async with running(tmp_path, **chaos) as stack:
        await stack.ready()
        body = await multimodal_question(stack)
        undisturbed = (await stack.post("/v1/chat/completions", json=body)).json()["choices"][0]
        for stage in STAGES:
            (tmp_path / f"kill-{stage}").touch()
        answer = asyncio.ensure_future(stack.post("/v1/chat/completions", json=body))
        killed = set()
        while not answer.done():
            for path in tmp_path.glob("at-*"):
                os.kill(int(path.read_text()), signal.SIGKILL)
                killed.add(path.name.removeprefix("at-"))
                path.unlink()
            await asyncio.sleep(0.01)
        response = await answer
        trace = await stack.http.get(f"{stack.info.gateway_url}/v1/requests/{response.headers['x-request-id']}/trace")
    disturbed = response.json()["choices"][0]
    assert killed == set(STAGES)
    assert disturbed["message"]["audio"]["transcript"] == undisturbed["message"]["audio"]["transcript"]
    assert disturbed["finish_reason"] == undisturbed["finish_reason"]
    assert disturbed["message"]["audio"]["data"] == undisturbed["message"]["audio"]["data"]
    attempts = {span["stage"]: span["attempt"] for span in trace.json()["spans"] if span["status"] == "ok"}
    assert all(attempts[stage] > 1 for stage in STAGES if stage != "assemble")


async def test_fifty_requests_survive_a_kill_of_everything_and_are_answered_once_each(tmp_path: Path):
    gate = {"OMNIBUS_FUNCTIONS": "tests.delivery.functions", "OMNIBUS_PIPELINES": str(Path(__file__).parent)}
    gate |= {"CHAIN_FOLDER": str(tmp_path), "OMNIBUS_WORKERS": "chain=1"}
    (tmp_path / "hold-two").touch()
    async with running(tmp_path, **gate) as stack:
        await stack.ready()
        for _ in range(50):
            url = f"{stack.info.gateway_url}/v1/pipelines/chain"
            headers = {"Prefer": "respond-async"}
            response = await stack.http.post(url, json={"number": 7}, headers=headers)
            assert response.status_code == 202, response.text
        await until(lambda: (tmp_path / "ran-two").exists(), "the second stage")
        children = stack.children()
        assert len(children) >= 3
        stack.process.send_signal(signal.SIGKILL)
        stack.process.wait()
        await until(lambda: not any(alive(pid) for pid in children), "the end of every child", 10)
    (tmp_path / "hold-two").unlink()
    async with running(tmp_path, **gate) as stack:
        await stack.ready()
        config = NatsConfig(url=stack.info.nats_url, token=stack.info.nats_token)
        async with NatsBus(config) as bus:
            client = PipelineClient(bus, Pipelines(()))
            while len(results := await bus.history("result.*")) < 50:
                await asyncio.sleep(0.05)
            assert len(results) == 50
            subjects = sorted(subject for subject, _ in results)
            for subject in subjects:
                result = await client.result(subject.removeprefix("result."))
                assert result is not None
                assert outputs_of(result) == {"number": 10, "seen": ["one", "two", "three"]}


async def test_a_hang_up_renews_the_workers_and_loses_nothing(tmp_path: Path):
    gate = {"OMNIBUS_FUNCTIONS": "tests.delivery.functions", "OMNIBUS_PIPELINES": str(Path(__file__).parent)}
    gate |= {"CHAIN_FOLDER": str(tmp_path), "OMNIBUS_WORKERS": "chain=1"}
    (tmp_path / "hold-two").touch()
    async with running(tmp_path, **gate) as stack:
        await stack.ready()
        url = f"{stack.info.gateway_url}/v1/pipelines/chain"
        first = asyncio.ensure_future(stack.http.post(url, json={"number": 7}))
        await until(lambda: len(runs(tmp_path, "two")) == 1, "the second stage")
        ((_, _, old),) = runs(tmp_path, "two")
        stack.process.send_signal(signal.SIGHUP)
        await until(lambda: "chain-1 is loaded" in stack.output, "the successor")
        second = asyncio.ensure_future(stack.http.post(url, json={"number": 7}))
        await until(lambda: len(runs(tmp_path, "two")) == 2, "the second request")
        (tmp_path / "hold-two").unlink()
        for response in await asyncio.gather(first, second):
            assert response.json()["outputs"] == {"number": 10, "seen": ["one", "two", "three"]}
        await until(lambda: not alive(old), "the end of the old worker")
    assert {attempt for _, attempt, _ in runs(tmp_path, "two")} == {1}


async def test_a_gateway_that_is_killed_comes_back(tmp_path: Path):
    async with running(tmp_path, OMNIBUS_WORKERS="media=1") as stack:
        await stack.ready()
        first = stack.gateway_pid()
        os.kill(first, signal.SIGKILL)
        while True:
            try:
                health = await stack.http.get(f"{stack.info.gateway_url}/health")
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            break
        assert health.json()["workers"]["ready"] == 1
        assert stack.gateway_pid() != first


async def test_ctrl_c_stops_everything_in_order_and_leaves_nothing(tmp_path: Path):
    async with running(tmp_path) as stack:
        await stack.ready()
        children = stack.children()
        assert len(children) >= 6
        port = int(stack.info.gateway_url.rsplit(":", 1)[1])
        stack.process.send_signal(signal.SIGINT)
        stack.process.wait(60)
        assert stack.process.returncode == 0, stack.output
        assert not any(alive(pid) for pid in children)
        assert find_stack(tmp_path / "data") is None
        with pytest.raises(httpx.ConnectError):
            await stack.http.get(f"http://127.0.0.1:{port}/health")


async def test_a_second_stack_and_a_missing_model_are_clear_errors(tmp_path: Path):
    async with running(tmp_path, OMNIBUS_MODELS=str(tmp_path / "no-models"), OMNIBUS_WORKERS="generate=1") as stack:
        await until(lambda: stack.process.poll() is not None, "the end of a stack without models")
        assert stack.process.returncode == 1
        assert "model_not_found" in stack.output or "omnibus models pull" in stack.output
