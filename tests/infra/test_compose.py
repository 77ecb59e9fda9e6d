"""The compose file: right by the schema, and each service's own command answers a request as a plain process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from infra.local.nats_server import free_port
from tests.bus.store.s3_server import s3_server
from tests.delivery.processes import ROOT, omnibus

COMPOSE = ROOT / "infra" / "compose" / "compose.yaml"
EXAMPLE = ROOT / "infra" / "compose" / "example.env"
WORKERS = ("worker-media", "worker-encode", "worker-speech", "worker-generate")
_VARIABLE = re.compile(r"\$\{(\w+)(?::?([-?])([^}]*))?\}")


def interpolated(text: str, variables: dict[str, str]) -> str:
    """The file with its variables filled in.

    Source: Compose specification, Interpolation.
    """

    def fill(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if variables.get(name):
            return variables[name]
        if kind == "-":
            return rest
        raise AssertionError(f"{name} has no value: {rest or 'no default'}")

    return _VARIABLE.sub(fill, text)


def example() -> dict[str, str]:
    lines = EXAMPLE.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(interpolated(COMPOSE.read_text(), example()))
    return loaded


def test_the_file_is_right_by_the_compose_schema(compose: dict[str, Any], tmp_path: Path):
    filled = tmp_path / "compose.yaml"
    filled.write_text(yaml.safe_dump(compose))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(filled)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_every_secret_must_be_set(compose: dict[str, Any]):
    for name in example():
        variables = {key: value for key, value in example().items() if key != name}
        with pytest.raises(AssertionError, match=name):
            interpolated(COMPOSE.read_text(), variables)


def test_no_secret_is_on_a_command_line(compose: dict[str, Any]):
    commands = str([service.get("command") for service in compose["services"].values()])
    assert [name for name, secret in example().items() if secret in commands] == []


def test_images_are_pinned_and_can_be_replaced(compose: dict[str, Any]):
    for name, service in compose["services"].items():
        assert re.search(r":[\w.-]+$", service["image"]), f"{name} has no tag"
        assert not service["image"].endswith(":latest")


def test_there_is_a_worker_for_every_function_group(compose: dict[str, Any]):
    from functions.registry import registry

    registry.load("functions.stages")
    served = {compose["services"][name]["command"][-1] for name in WORKERS}
    assert served == {spec.group for spec in registry if spec.handler.__module__.startswith("functions.stages")}


def test_profiles_add_a_gpu_worker_and_another_object_store(compose: dict[str, Any]):
    profiles = {name: service["profiles"] for name, service in compose["services"].items() if "profiles" in service}
    assert profiles == {"rustfs": ["rustfs"], "worker-generate-gpu": ["gpu"]}


class Deployment:
    """The services of the file as plain processes of this machine."""

    def __init__(self, compose: dict[str, Any], folder: Path, s3: str, stack: ExitStack) -> None:
        self._services = compose["services"]
        self._configs = compose["configs"]
        self._folder = folder
        self._stack = stack
        self.ports = {"nats": free_port(), "gateway": free_port()}
        self._hosts = {
            "nats://nats:4222": f"nats://127.0.0.1:{self.ports['nats']}",
            "http://object-store:9000": f"http://{s3}",
            "/dev/shm/omnibus": str(folder / "tensors"),
        }

    def start_nats(self) -> None:
        service = self._services["nats"]
        (mounted,) = service["configs"]
        text = self._configs[mounted["source"]]["content"]
        here = {"/data": str(self._folder / "nats"), "0.0.0.0:4222": f"127.0.0.1:{self.ports['nats']}"}
        for there, instead in {**here, ":8222": f":{free_port()}"}.items():
            assert there in text
            text = text.replace(there, instead)
        config = self._folder / "nats.conf"
        config.write_text(text)
        arguments = [str(config) if part == mounted["target"] else part for part in service["command"]]
        server = Path(sysconfig.get_path("scripts")) / "nats-server"
        process = subprocess.Popen([server, *arguments], stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def start(self, name: str) -> None:
        service = self._services[name]
        variables = {key: self._here(str(value)) for key, value in service["environment"].items()}
        variables.pop("OMNIBUS_MODELS")
        if "OMNIBUS_PORT" in variables:
            variables |= {"OMNIBUS_PORT": str(self.ports["gateway"]), "OMNIBUS_HOST": "127.0.0.1"}
        command, *arguments = service["command"]
        assert command == "omnibus"
        self._stack.enter_context(omnibus(*arguments, log=self.log(name), **variables))

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _here(self, value: str) -> str:
        for there, here in self._hosts.items():
            value = value.replace(there, here)
        return value


@pytest.fixture
async def gateway(compose: dict[str, Any], tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server())
        deployment = Deployment(compose, tmp_path, s3, stack)
        deployment.start_nats()
        for name in (*WORKERS, "gateway"):
            deployment.start(name)
        headers = {"authorization": f"Bearer {example()['OMNIBUS_API_KEY']}"}
        url = f"http://127.0.0.1:{deployment.ports['gateway']}"
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
            await _wait_until_ready(client, deployment)
            yield client


async def _wait_until_ready(client: httpx.AsyncClient, deployment: Deployment) -> None:
    for _ in range(6000):
        try:
            if (await client.get("/health")).json()["status"] == "READY":
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        await asyncio.sleep(0.02)
    logs = "\n".join(f"{name}: {deployment.log(name).read_text()[-2000:]}" for name in (*WORKERS, "gateway"))
    raise AssertionError(f"never ready:\n{logs}")


@pytest.mark.models
@pytest.mark.timeout(300)
async def test_the_services_answer_a_chat_with_a_spoken_answer_through_nats_and_s3(gateway: httpx.AsyncClient):
    refused = await gateway.get("/v1/models", headers={"authorization": "Bearer wrong"})
    assert refused.status_code == 401
    body = {
        "model": "chat",
        "messages": [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence."}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "af_heart", "format": "wav"},
        "max_tokens": 24,
    }
    response = await gateway.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    message = response.json()["choices"][0]["message"]
    assert "Tokyo" in message["audio"]["transcript"]
    trace = (await gateway.get(f"/v1/requests/{response.headers['x-request-id']}/trace")).json()["spans"]
    assert {span["worker"].rsplit("-", 1)[0] for span in trace} == {"media", "speech", "generate"}
