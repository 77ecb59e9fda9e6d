"""`omnibus models build` on a folder that transformers saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

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
