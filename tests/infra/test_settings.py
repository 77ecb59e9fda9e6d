from __future__ import annotations

import pytest

from bus.errors import StackConfigError
from infra.settings import load_settings


def test_a_variable_that_is_no_setting_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_PROT", "9000")
    with pytest.raises(StackConfigError, match="OMNIBUS_PROT is not a setting; did you mean OMNIBUS_PORT"):
        load_settings()


def test_every_problem_is_told_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_PORT", "many")
    monkeypatch.setenv("OMNIBUS_GRACE_S", "-1")
    with pytest.raises(StackConfigError) as caught:
        load_settings()
    assert len(caught.value.details["problems"]) == 2
    assert "OMNIBUS_PORT" in caught.value.message


def test_memory_is_read_as_people_write_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_MODEL_MEMORY", "1.5GB")
    monkeypatch.setenv("OMNIBUS_PINNED", "generate, text.embed,")
    settings = load_settings()
    assert settings.model_memory == 1_500_000_000
    assert settings.pinned_models == ("generate", "text.embed")
    monkeypatch.setenv("OMNIBUS_MODEL_MEMORY", "a lot")
    monkeypatch.setenv("OMNIBUS_DEVICE", "abacus")
    with pytest.raises(StackConfigError, match=r"OMNIBUS_MODEL_MEMORY.*OMNIBUS_DEVICE|OMNIBUS_DEVICE.*MODEL_MEMORY"):
        load_settings()


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_PORT", "9000")
    assert load_settings(port=9001).port == 9001
    assert load_settings(port=None).port == 9000


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMNIBUS_NATS_TOKEN", "s3cret")
    monkeypatch.setenv("OMNIBUS_STORE_SECRET_KEY", "s3cret")
    settings = load_settings()
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in repr(settings.nats)
    assert settings.nats.token == "s3cret"


@pytest.mark.parametrize("text", ["", "media", "media=x", "=1"])
def test_worker_counts_that_make_no_sense_are_refused(text: str):
    with pytest.raises(StackConfigError, match="OMNIBUS_WORKERS is like"):
        _ = load_settings(workers=text).worker_counts


def test_worker_counts_are_read():
    assert load_settings(workers="media=1, generate=2").worker_counts == {"media": 1, "generate": 2}
