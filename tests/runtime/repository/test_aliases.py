"""Names that the deployer gives to models."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bus.errors import InvalidInputError, ModelCorruptError, ModelNotFoundError
from infra.cli.models import models as command
from runtime.repository import Catalog, Repository
from tests.runtime.engines.small_model import install


@pytest.fixture
def models(tmp_path: Path) -> Repository:
    """tiny@1 and tiny@2."""
    for version in "12":
        install(tmp_path, version=version)
    return Repository(tmp_path, catalog=Catalog(()))


def test_a_name_stands_for_what_the_deployer_says(models: Repository) -> None:
    models.alias("answer-model", "tiny@1")
    assert models.resolve("answer-model").ref == "tiny@1"
    models.alias("answer-model", "tiny")
    assert models.resolve("answer-model").ref == "tiny@2"
    assert Repository(models.root, catalog=Catalog(())).resolve("answer-model").ref == "tiny@2"
    models.alias("answer-model", None)
    with pytest.raises(ModelNotFoundError):
        models.resolve("answer-model")


def test_an_id_can_be_held_at_a_version(models: Repository) -> None:
    models.alias("tiny", "tiny@1")
    assert models.resolve("tiny").ref == "tiny@1"
    assert models.resolve("tiny@2").ref == "tiny@2"
    models.alias("tiny", "tiny@2")
    assert models.resolve("tiny").ref == "tiny@2"
    models.alias("tiny", None)
    assert models.resolve("tiny").ref == "tiny@2"


def test_a_name_never_stands_for_what_is_not_here(models: Repository) -> None:
    for target in ("large", "tiny@3"):
        with pytest.raises(ModelNotFoundError):
            models.alias("answer-model", target)
    assert models.aliases.read() == {}


@pytest.mark.parametrize("name", ["", "a@1", "../a", "a b", "-a", "a" * 200])
def test_a_name_that_could_mean_something_else_is_refused(models: Repository, name: str) -> None:
    with pytest.raises(InvalidInputError, match="an alias is"):
        models.alias(name, "tiny")


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_table_is_named(models: Repository, content: str) -> None:
    (models.root / "aliases.json").write_text(content)
    with pytest.raises(ModelCorruptError, match=r"aliases\.json"):
        models.resolve("tiny")


def test_the_stamp_changes_with_an_alias_and_with_a_version(models: Repository) -> None:
    stamps = [models.stamp("tiny")]
    models.alias("other", "tiny@1")
    stamps.append(models.stamp("tiny"))
    install(models.root, version="3")
    stamps.append(models.stamp("tiny"))
    assert models.stamp("tiny") == stamps[-1]
    assert len(set(stamps)) == 3


def test_what_a_model_takes_is_written_into_its_manifest(models: Repository) -> None:
    manifest = models.resolve("tiny@1")
    assert manifest.memory_nbytes is None
    for nbytes in (5, 9, 7):
        models.remember_memory(models.resolve("tiny@1"), nbytes)
    assert models.resolve("tiny@1") == manifest.model_copy(update={"memory_nbytes": 9})
    assert sorted(path.name for path in models.folder(manifest).iterdir()) == [
        "manifest.json", "model.data", "model.onnx",
    ]  # fmt: skip


def test_a_model_that_was_removed_gets_no_manifest_back(models: Repository) -> None:
    manifest = models.resolve("tiny@1")
    models.remove("tiny@1")
    models.remember_memory(manifest, 5)
    assert [one.ref for one in models.list()] == ["tiny@2"]


def test_the_command_gives_and_takes_names(models: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIBUS_MODELS", str(models.root))

    def run(*arguments: str) -> str:
        return CliRunner().invoke(command, ["alias", *arguments]).output

    assert run("answer-model", "tiny@1") == "answer-model: tiny@1\n"
    assert "answer-model  tiny@1" in run()
    assert "give a TARGET or --remove" in run("answer-model")
    assert "nothing of its own" in run("answer-model", "--remove")
    assert models.aliases.read() == {}


def test_the_list_tells_every_version_its_names_and_its_memory(
    models: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIBUS_MODELS", str(models.root))
    models.alias("answer-model", "tiny@1")
    models.alias("gone", "tiny@2")
    models.remember_memory(models.resolve("tiny@1"), 12_000_000)
    models.remove("tiny@2")
    install(models.root, version="10")
    output = CliRunner().invoke(command, ["ls"], catch_exceptions=False).output
    rows = [line.split() for line in output.splitlines() if line.startswith("tiny ")]
    assert rows == [
        ["tiny", "1", "answer-model", "MIT", "0.0", "12", "not", "in", "the", "catalog"],
        ["tiny", "10", "MIT", "0.0", "not", "in", "the", "catalog"],
    ]
