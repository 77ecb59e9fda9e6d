from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import GatewayError, StackConfigError
from infra.cli.connect import bus_config, open_gateway
from infra.local.folder import DataFolder
from infra.local.nats_server import free_port
from infra.settings import load_settings
from tests.infra.test_folder import info


def test_without_a_stack_a_command_says_how_to_get_or_name_one(tmp_path: Path):
    settings = load_settings(data=str(tmp_path))
    with pytest.raises(StackConfigError, match=r"omnibus up.*OMNIBUS_URL"), open_gateway(settings):
        pass
    with pytest.raises(StackConfigError, match=r"omnibus up.*OMNIBUS_NATS_URL"):
        bus_config(settings)


def test_the_stack_of_the_data_folder_is_used(tmp_path: Path):
    with DataFolder(tmp_path) as folder:
        folder.publish(info(gateway_url="http://127.0.0.1:7", nats_url="nats://127.0.0.1:8", nats_token="t"))
        settings = load_settings(data=str(tmp_path))
        with open_gateway(settings) as gateway:
            assert gateway.base_url == "http://127.0.0.1:7"
        assert (bus_config(settings).url, bus_config(settings).token) == ("nats://127.0.0.1:8", "t")


def test_settings_name_a_gateway_and_a_bus_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_URL", "http://gateway:9")
    monkeypatch.setenv("OMNIBUS_NATS_URL", "nats://bus:10")
    monkeypatch.setenv("OMNIBUS_API_KEY", "key")
    settings = load_settings(data=str(tmp_path))
    with open_gateway(settings) as gateway:
        assert gateway.base_url == "http://gateway:9"
        assert gateway.headers["authorization"] == "Bearer key"
    assert bus_config(settings).url == "nats://bus:10"


def test_a_gateway_that_does_not_answer_is_named(tmp_path: Path):
    settings = load_settings(data=str(tmp_path), url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(GatewayError, match="does not answer"), open_gateway(settings) as gateway:
        gateway.get("/health")
