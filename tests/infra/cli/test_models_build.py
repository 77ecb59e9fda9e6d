"""`omnibus models build` on a folder that transformers saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bus.errors import EngineError, InvalidInputError, ModelNotFoundError
from infra.cli.models import models
from tests.runtime.export.folders import chat_folder


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIBUS_MODELS", str(tmp_path / "models"))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(models, arguments)


def test_a_folder_becomes_a_model_that_is_listed_checked_and_shown(root: Path) -> None:
    folder = chat_folder(root / "Tiny Chat").folder
    assert "tiny-chat@1 is ready" in run("build", str(folder), "--context", "64").output
    assert "not in the catalog" in run("ls").output
    assert run("verify").output == "tiny-chat@1: ok\n"
    assert '"quantisation": "q8"' in run("show", "tiny-chat").output
    assert "tiny-chat@2 is ready" in run("build", str(folder), "--quantize", "float32").output


def test_the_name_of_a_model_of_the_catalog_is_taken(root: Path) -> None:
    folder = chat_folder(root / "tiny").folder
    found = run("build", str(folder), "--id", "whisper-base")
    assert found.exit_code != 0
    assert "whisper-base" in str(found.exception)


@pytest.mark.parametrize(("name", "why"), [("demo", "a set of models"), ("chat", "claim 'chat'"), ("a" * 300, "100")])
def test_a_name_that_cannot_be_a_models_is_refused(name: str, why: str, root: Path) -> None:
    folder = chat_folder(root / "tiny").folder
    found = run("build", str(folder), "--id", name)
    assert isinstance(found.exception, InvalidInputError)
    assert why in found.exception.message
    assert not any((root / "models").glob("*/*/manifest.json"))


def test_a_damaged_model_of_ones_own_says_what_to_build_it_from(root: Path) -> None:
    folder = chat_folder(root / "tiny").folder
    run("build", str(folder), "--context", "64")
    data = root / "models" / "tiny" / "1" / "model.data"
    data.write_bytes(data.read_bytes()[:-1])
    found = run("verify", "--repair")
    assert isinstance(found.exception, ModelNotFoundError)
    assert f"built from {folder}" in found.exception.message
    assert "tiny@1 is ready" in run("build", str(folder), "--context", "64").output
    assert run("verify").output == "tiny@1: ok\n"


def test_a_models_folder_that_cannot_be_written_is_named(root: Path) -> None:
    folder = chat_folder(root / "tiny").folder
    (root / "models").write_text("no folder")
    assert run("ls").exit_code == 0
    for arguments in (("build", str(folder)), ("alias", "mine", "--remove")):
        found = run(*arguments)
        assert isinstance(found.exception, EngineError)
        assert str(root / "models") in found.exception.message
