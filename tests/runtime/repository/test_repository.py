"""What is installed: found, checked, repaired, removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bus.errors import EngineError, InvalidInputError, ModelCorruptError, ModelNotFoundError
from runtime.repository import BuildJob, Built, Catalog, builtin_catalog
from runtime.repository.catalog import LICENSE_FOLDER
from runtime.repository.location import default_root
from runtime.repository.recipe import recipe
from tests.runtime.repository.conftest import WEIGHTS, entry, repository
from tests.runtime.repository.index_server import IndexServer


def test_a_model_that_is_not_installed_is_answered_with_the_command_that_pulls_it(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="omnibus models pull tiny"):
        repository(tmp_path).resolve("small")


def test_the_newest_installed_version_answers_to_the_bare_name(index: IndexServer, tmp_path: Path) -> None:
    for version in ("9", "10", "1"):
        repository(tmp_path, entry(version=version)).pull("tiny")
    models = repository(tmp_path, entry(version="10"))
    assert models.resolve("tiny").version == "10"
    assert models.resolve("tiny@9").version == "9"
    assert [one.version for one in models.list()] == ["1", "9", "10"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.write_bytes(WEIGHTS[:-1] + b"?"), "other bytes"),
        (lambda path: path.write_bytes(WEIGHTS[:100]), "has 100 bytes"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["changed", "cut short", "removed"],
)
def test_damage_is_found_and_repaired(index: IndexServer, tmp_path: Path, damage: object, problem: str) -> None:
    models = repository(tmp_path)
    models.pull("tiny")
    damage(tmp_path / "models" / "tiny" / "1" / "model.bin")  # type: ignore[operator]
    (found,) = models.verify("tiny")
    assert problem in found
    models.repair("tiny")
    assert models.verify("tiny") == ()


def test_a_file_that_was_cut_short_is_refused_when_it_is_asked_for(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    (pulled,) = models.pull("tiny")
    models.file(pulled, "model.bin").write_bytes(b"")
    with pytest.raises(ModelCorruptError, match="verify tiny --repair"):
        models.file(pulled, "model.bin")


def test_a_broken_manifest_is_named(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    models.pull("tiny")
    manifest = tmp_path / "models" / "tiny" / "1" / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(ModelCorruptError, match=r"manifest\.json is not"):
        models.resolve("tiny")
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(ModelCorruptError, match=r"manifest\.json cannot be read"):
        models.resolve("tiny")


def test_a_removed_model_is_gone(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    models.pull("tiny")
    assert models.remove("tiny").ref == "tiny@1"
    assert models.list() == ()


def test_a_reader_keeps_its_files_while_a_model_is_made_again(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    (pulled,) = models.pull("tiny")
    with models.file(pulled, "model.bin").open("rb") as reader:
        models.pull("tiny", force=True)
        assert reader.read() == WEIGHTS


def test_what_a_dead_pull_left_is_cleared_and_no_other_models_work(index: IndexServer, tmp_path: Path) -> None:
    left, other = (tmp_path / "models" / ".staging" / name for name in ("tiny@dead", "tiny-chat@alive"))
    left.mkdir(parents=True)
    other.mkdir()
    repository(tmp_path).pull("tiny")
    assert not left.exists()
    assert other.exists()


def build_upper_case(job: BuildJob) -> Built:
    text = (job.raw / "LICENSE").read_text()
    (job.out / "built.txt").write_text(text.upper() + str(job.parameters["mark"]))
    return Built(dims={"letters": len(text)}, parameters={"found": True})


def test_a_build_recipe_makes_the_served_files_and_adds_to_the_manifest(index: IndexServer, tmp_path: Path) -> None:
    built = entry(build=f"{__name__}:build_upper_case", parameters={"mark": "!"})
    models = repository(tmp_path, built)
    (pulled,) = models.pull("tiny")
    assert models.file(pulled, "built.txt").read_text() == "DO AS YOU LIKE.!"
    assert pulled.dims == {"letters": 15}
    assert pulled.parameters == {"mark": "!", "found": True}
    assert {file.path for file in pulled.files} == {"built.txt", "LICENSE"}


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="both claim 'small'"):
        Catalog((entry(), entry(id="other")))


def test_the_models_folder_is_set_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIBUS_MODELS", str(tmp_path / "here"))
    assert default_root() == tmp_path / "here"
    monkeypatch.delenv("OMNIBUS_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "omnibus" / "models"


def test_every_model_of_the_built_in_catalog_can_be_built_and_has_a_licence_text() -> None:
    for one in builtin_catalog():
        if one.build is not None:
            assert callable(recipe(one.build)), one.id
        given = any(file.path == "LICENSE" for source in one.sources for file in source.files)
        assert given or (LICENSE_FOLDER / f"{one.license}.txt").is_file(), one.id
        assert all(source.sha256 for source in one.sources if source.source.startswith("pypi:")), one.id


def test_the_demo_set_covers_every_task() -> None:
    demo = {alias for one in builtin_catalog().expand("demo") for alias in one.names}
    assert demo >= {"chat", "asr", "tts", "vision", "label-bridge", "embed", "silero-vad", "ocr"}


def test_a_folder_that_cannot_be_written_still_serves_what_is_in_it(index: IndexServer, tmp_path: Path) -> None:
    models = repository(tmp_path)
    pulled = models.pull("tiny")
    locks = tmp_path / "models" / ".locks"
    shutil.rmtree(locks)
    locks.write_text("no folder")
    assert models.pull("tiny") == pulled
    with pytest.raises(EngineError, match="cannot be written"):
        models.pull("tiny", force=True)
    with pytest.raises(EngineError, match="cannot be written"):
        models.remove("tiny")


def test_no_model_is_called_as_a_set_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a set of models is called 'demo'"):
        repository(tmp_path, entry(), entry(id="demo", sets=[], aliases=[]))
