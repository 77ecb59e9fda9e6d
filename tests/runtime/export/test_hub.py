"""Models of a hub: listed, pinned to a commit, downloaded and built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError, ModelCorruptError, ModelSourceError, ModelUnsupportedError
from runtime.export.hugging_face import BuildOptions, entry_of
from runtime.repository import Catalog, Repository
from tests.runtime.export.folders import chat_folder
from tests.runtime.export.hub import COMMIT, Hub

OPTIONS = BuildOptions(quantisation="float32", context_tokens=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("hub"), shard="100KB").folder


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(folder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.origin)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def build(place: str, root: Path) -> ModelManifest:
    known = Repository(root / "models", catalog=Catalog(()))
    entry = entry_of(place, known, OPTIONS)
    (built,) = Repository(known.root, catalog=Catalog((entry,))).pull(entry.id)
    return built


@pytest.mark.parametrize("place", ["hf://tiny/Chat", "hf://tiny/Chat@v1"])
def test_a_repository_in_several_files_is_built_from_one_commit(place: str, hub: Hub, tmp_path: Path) -> None:
    built = build(place, tmp_path)
    assert (built.ref, built.license) == ("chat@1", "MIT")
    assert built.source == (f"hf://tiny/Chat@{COMMIT}",)
    assert sum(path.endswith(".safetensors") for path in hub.asked) > 1
    assert build(place, tmp_path) == built


def test_weights_of_another_digest_than_the_hub_says_are_refused_and_read_again(hub: Hub, tmp_path: Path) -> None:
    shard = sorted(hub.folder.glob("*.safetensors"))[-1].name
    hub.damaged.add(shard)
    with pytest.raises(ModelCorruptError, match=rf"{shard} has sha256"):
        build("hf://tiny/Chat", tmp_path)
    hub.damaged.clear()
    assert build("hf://tiny/Chat", tmp_path).ref == "chat@1"


def test_a_repository_that_is_not_there_is_no_reason_to_try_again(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="404") as found:
        build("hf://tiny/Chat@v2", tmp_path)
    assert not found.value.retryable


@pytest.mark.parametrize("listing", [b"", b"[]", b"{}", json.dumps({"sha": COMMIT, "siblings": [1]}).encode()])
def test_a_listing_that_is_none_is_refused(listing: bytes, hub: Hub, tmp_path: Path) -> None:
    hub.listing = listing
    with pytest.raises(ModelSourceError, match="no listing"):
        build("hf://tiny/Chat", tmp_path)


def test_a_repository_without_a_model_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.listing = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "README.md"}]}).encode()
    with pytest.raises(ModelSourceError, match=r"config\.json"):
        build("hf://tiny/Chat", tmp_path)


def test_a_family_that_is_not_built_is_refused_before_its_weights_are_downloaded(
    folder: Path, hub: Hub, tmp_path: Path
) -> None:
    hub.folder = tmp_path / "other"
    hub.folder.mkdir()
    (hub.folder / "config.json").write_text('{"model_type": "mamba"}')
    (hub.folder / "model.safetensors").write_bytes(b"large")
    with pytest.raises(ModelUnsupportedError, match=r"'mamba'.*qwen3"):
        build("hf://tiny/Chat", tmp_path)
    assert not any("safetensors" in path for path in hub.asked)


def test_a_hub_that_does_not_answer_may_answer_later(monkeypatch: pytest.MonkeyPatch, hub: Hub, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelSourceError) as found:
        build("hf://tiny/Chat", tmp_path)
    assert found.value.retryable


def test_a_name_that_is_none_of_a_hub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="org/repo"):
        build("hf://just-a-name", tmp_path)


@pytest.mark.parametrize(
    ("told", "licence"),
    [("mit", "MIT"), (["mit", "apache-2.0"], "LicenseRef-unknown"), (7, "LicenseRef-unknown"), ("other", "other")],
)
def test_whatever_a_listing_says_of_a_licence_the_model_is_built(
    told: object, licence: str, folder: Path, hub: Hub, tmp_path: Path
) -> None:
    files = [{"rfilename": file.name} for file in folder.iterdir()]
    hub.listing = json.dumps({"sha": COMMIT, "siblings": files, "cardData": {"license": told}}).encode()
    known = Repository(tmp_path / "models", catalog=Catalog(()))
    assert entry_of("hf://tiny/Chat", known, OPTIONS).license == licence
