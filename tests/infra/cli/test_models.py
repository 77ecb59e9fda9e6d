"""`omnibus models` on a catalog of this machine's own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infra.cli.models import models
from runtime.repository import catalog as catalogs
from runtime.repository import repository as repositories
from runtime.repository.catalog import load_catalog


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder and a catalog with one model in it."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "weights").write_bytes(b"weights")
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "tiny.yaml").write_text(
        f"""
        id: tiny
        version: "1"
        family: test
        summary: Seven bytes
        license: MIT
        aliases: [small]
        sets: [demo]
        sources:
          - source: file://{tmp_path}/raw
            files: [{{member: weights, path: model.bin}}]
        """
    )
    monkeypatch.setenv("OMNIBUS_MODELS", str(tmp_path / "models"))
    shelf = load_catalog(tmp_path / "catalog")
    monkeypatch.setattr(repositories, "builtin_catalog", lambda: shelf)
    assert catalogs.builtin_catalog() is not shelf
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(models, arguments, catch_exceptions=False)


def test_a_set_is_pulled_listed_shown_and_removed() -> None:
    assert "not pulled" in run("ls").output
    assert "1 ready" in run("pull", "demo").output
    assert "not pulled" not in run("ls").output
    assert '"id": "tiny"' in run("show", "small").output
    assert "removed tiny@1" in run("rm", "tiny").output
    assert "not pulled" in run("ls").output


def test_damage_is_reported_then_repaired(shelf: Path) -> None:
    run("pull", "tiny")
    assert run("verify").output == "tiny@1: ok\n"
    (shelf / "models" / "tiny" / "1" / "model.bin").write_bytes(b"damaged")
    found = run("verify", "tiny")
    assert found.exit_code == 1
    assert "other bytes" in found.output
    assert "--repair" in found.output
    assert run("verify", "--repair").exit_code == 0
    assert run("verify").output == "tiny@1: ok\n"
