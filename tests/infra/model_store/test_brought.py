"""What a set, a host and a command bring out of the store."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import (
    ModelCorruptError,
    StoreUnavailableError,
)
from bus.store.bucket import S3Bucket
from infra.model_store import bring_models, open_repository, pull_models
from infra.settings import Settings
from runtime.repository import Catalog, CatalogEntry, Repository
from runtime.repository.published import fetch, publish
from tests.infra.model_store.made import WEIGHTS, install, there


def catalog_entry(source: Path) -> CatalogEntry:
    return CatalogEntry.model_validate(
        {
            "id": "mine", "version": "1", "family": "test", "summary": "", "license": "MIT", "sets": ["all"],
            "sources": [{"source": f"file://{source}", "files": [{"member": "raw", "path": "raw"}]}],
        }
    )  # fmt: skip


def test_a_set_comes_out_of_the_store_as_far_as_it_is_there(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    (tmp_path / "raw").write_bytes(b"raw")
    publish(install(there(tmp_path)), "mine", store)
    other = catalog_entry(tmp_path / "raw").model_copy(update={"id": "other"})
    models = Repository(settings.models, catalog=Catalog((catalog_entry(tmp_path / "raw"), other)))
    pulled = {one.ref: one for one in pull_models(models, "all", store)}
    assert pulled["mine@1"].source == ("file:///elsewhere",)
    assert pulled["other@1"].source == (f"file://{tmp_path / 'raw'}",)


def test_an_object_can_be_a_source_of_a_catalog(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    store.put("raw/weights", WEIGHTS)
    place = f"s3://{store.config.bucket}/team/raw/weights?endpoint=http://{store.config.endpoint}"
    entry = catalog_entry(tmp_path)
    sources = (entry.sources[0].model_copy(update={"source": place, "sha256": hashlib.sha256(WEIGHTS).hexdigest()}),)
    models = open_repository(settings)
    (added,) = [models.add(entry.model_copy(update={"sources": sources}))]
    assert models.file(added, "raw").read_bytes() == WEIGHTS


def test_a_host_fetches_what_its_functions_need_before_it_serves(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    for model in ("smollm2-135m-instruct", "whisper-base", "not-asked-for"):
        publish(install(there(tmp_path), model), model, store)
    bring_models(settings, ("generate",))
    assert [one.id for one in open_repository(settings).list()] == ["smollm2-135m-instruct"]
    bring_models(settings)
    assert [one.id for one in open_repository(settings).list()] == ["smollm2-135m-instruct", "whisper-base"]


def test_what_is_damaged_in_the_store_keeps_no_other_model_from_its_host(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    for model in ("smollm2-135m-instruct", "whisper-base", "kokoro-82m"):
        publish(install(there(tmp_path), model), model, store)
    store.put("kokoro-82m/1/manifest.json", b"{")
    store.delete("smollm2-135m-instruct/1/model.bin")
    bring_models(settings)
    assert [one.id for one in open_repository(settings).list()] == ["whisper-base"]


def test_a_name_is_found_beside_models_that_cannot_be_read(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path), aliases=("eyes",)), "mine", store)
    store.put("broken/1/manifest.json", b"{")
    store.put("broken/²/manifest.json", b"{")
    models = open_repository(settings)
    assert fetch(models, "eyes", store).ref == "mine@1"
    with pytest.raises(ModelCorruptError, match="broken@1 has no manifest that can be read"):
        fetch(models, "broken@1", store)


def test_what_is_pinned_is_fetched_too(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path), "eyes"), "eyes", store)
    bring_models(settings.model_copy(update={"pinned": "eyes, generate, nobody-has-it"}), ("generate",))
    assert [one.id for one in open_repository(settings).list()] == ["eyes"]


def test_a_host_that_has_its_models_asks_no_store(settings: Settings, tmp_path: Path) -> None:
    nowhere = settings.model_copy(update={"models_from": "s3://bucket?endpoint=http://127.0.0.1:9"})
    with pytest.raises(StoreUnavailableError) as caught:
        bring_models(nowhere, ("generate",))
    assert caught.value.retryable
    assert settings.models is not None
    install(settings.models, "smollm2-135m-instruct")
    bring_models(nowhere, ("generate",))
    bring_models(settings.model_copy(update={"models_from": None}))


def test_the_command_publishes_and_pulls(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    install(there(tmp_path))
    environment = {
        "PATH": "/usr/bin:/bin",
        "OMNIBUS_MODELS": str(there(tmp_path)),
        "OMNIBUS_STORE_URL": f"s3://objects?endpoint=http://{store.config.endpoint}",
        "OMNIBUS_STORE_ACCESS_KEY": "access",
        "OMNIBUS_STORE_SECRET_KEY": "secret",
    }
    command = [sys.executable, "-m", "infra.cli.main", "models"]
    place = f"s3://{store.config.bucket}/by/hand"

    def run(*words: str) -> str:
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("push", "mine", place) == f"mine@1 is in {store.config.bucket}\n"
    shutil.rmtree(there(tmp_path))
    assert "1 ready" in run("pull", "mine", "--from", place)
    assert run("verify") == "mine@1: ok\n"
