"""Models in an object store: published from one machine, fetched by another one, against a real S3 server."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from bus.errors import (
    EngineError,
    InvalidInputError,
    ModelCorruptError,
    ModelNotFoundError,
    ModelSourceError,
)
from bus.store.bucket import S3Bucket
from infra.model_store import model_store, open_repository
from infra.settings import Settings
from runtime.repository import Step
from runtime.repository.published import fetch, publish
from tests.infra.model_store.made import CONFIG, WEIGHTS, install, there


def test_a_published_model_is_fetched_whole_by_a_machine_that_has_none(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    published = publish(install(there(tmp_path)), "mine", store)
    steps: list[Step] = []
    models = open_repository(settings)
    assert fetch(models, "mine", store, steps.append) == published
    assert models.resolve("mine") == published
    assert models.verify("mine") == ()
    assert models.file(published, "model.bin").read_bytes() == WEIGHTS
    assert {(step.subject, step.done) for step in steps} >= {("model.bin", len(WEIGHTS)), ("tokens/config.json", 13)}
    assert steps[-1] == Step("mine", "ready")
    here = models.folder(published)
    assert {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()} == {
        "manifest.json", "model.bin", "tokens/config.json", "empty",
    }  # fmt: skip


def test_the_newest_version_is_meant_unless_one_is_named(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    for version in ("2", "10"):
        publish(install(there(tmp_path), version=version), f"mine@{version}", store)
    models = open_repository(settings)
    assert fetch(models, "mine@2", store).ref == "mine@2"
    assert fetch(models, "mine", store).ref == "mine@10"
    assert [one.ref for one in models.list()] == ["mine@2", "mine@10"]


def test_a_model_is_found_by_an_alias_that_it_brought(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path), aliases=("favourite",)), "mine", store)
    assert fetch(open_repository(settings), "favourite", store).ref == "mine@1"


def test_what_is_not_published_is_answered_with_what_is(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path)), "mine", store)
    with pytest.raises(ModelNotFoundError, match=r"no model 'yours' is in the store; it has: mine;.*models push"):
        fetch(open_repository(settings), "yours", store)


def test_a_model_without_a_manifest_is_half_published_and_not_fetched(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    publish(install(there(tmp_path)), "mine", store)
    store.delete("mine/1/manifest.json")
    with pytest.raises(ModelNotFoundError):
        fetch(open_repository(settings), "mine", store)


def test_publishing_again_writes_nothing_and_another_model_of_that_version_is_refused(
    store: S3Bucket, tmp_path: Path
) -> None:
    models = install(there(tmp_path))
    publish(models, "mine", store)
    marked = bytes(reversed(CONFIG))  # as long as what it stands for
    store.put("mine/1/tokens/config.json", marked)
    publish(models, "mine", store)
    assert store.get("mine/1/tokens/config.json") == marked
    with pytest.raises(InvalidInputError, match="another mine@1"):
        publish(install(tmp_path / "third", weights=b"others"), "mine", store)


def test_a_damaged_model_is_not_published(store: S3Bucket, tmp_path: Path) -> None:
    models = install(there(tmp_path))
    models.file(models.resolve("mine"), "model.bin").write_bytes(WEIGHTS[:-1] + b"x")
    with pytest.raises(ModelCorruptError, match=r"model\.bin has other bytes"):
        publish(models, "mine", store)
    assert list(store.keys()) == []


def test_bytes_of_another_digest_are_never_served(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path)), "mine", store)
    store.put("mine/1/model.bin", WEIGHTS[:-1] + b"x")
    models = open_repository(settings)
    with pytest.raises(ModelCorruptError, match=r"mine/1/model\.bin has sha256"):
        fetch(models, "mine", store)
    assert models.list() == ()
    store.put("mine/1/model.bin", WEIGHTS)
    fetch(models, "mine", store)
    assert models.verify("mine") == ()


def test_an_object_that_is_gone_is_named(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    publish(install(there(tmp_path)), "mine", store)
    store.delete("mine/1/model.bin")
    with pytest.raises(ModelSourceError, match=r"mine/1/model\.bin answers 404") as caught:
        fetch(open_repository(settings), "mine", store)
    assert "X-Amz" not in str(caught.value)


def test_what_is_missing_of_a_published_model_is_put_back_when_it_is_published_again(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    models = install(there(tmp_path))
    publish(models, "mine", store)
    store.delete("mine/1/model.bin")
    store.put("mine/1/empty", b"cut off in the middle")
    publish(models, "mine", store)
    fetch(open_repository(settings), "mine", store)
    assert open_repository(settings).verify("mine") == ()


@pytest.mark.parametrize(
    "path", ["../../outside", "/etc/outside", "manifest.json", "nul\0", "empty.part", ".empty.lock", ".", "a/.."]
)
def test_a_manifest_that_would_write_outside_its_folder_is_refused(
    settings: Settings, store: S3Bucket, tmp_path: Path, path: str
) -> None:
    manifest = publish(install(there(tmp_path)), "mine", store)
    bad = manifest.model_copy(update={"files": (manifest.files[0].model_copy(update={"path": path}),)})
    store.put("mine/1/manifest.json", bad.model_dump_json().encode())
    with pytest.raises(ModelCorruptError, match="outside its folder"):
        fetch(open_repository(settings), "mine", store)


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_read(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    manifest = publish(install(there(tmp_path)), "mine", store)
    huge = manifest.model_copy(update={"files": (manifest.files[0].model_copy(update={"nbytes": 1 << 60}),)})
    store.put("mine/1/manifest.json", huge.model_dump_json().encode())
    models = open_repository(settings)
    with pytest.raises(EngineError, match="mine@1 takes 1152921504607 MB") as caught:
        fetch(models, "mine", store)
    assert not caught.value.retryable
    assert not [path for path in models.root.rglob("*") if path.is_file() and path.suffix != ".lock"]


def _fetch_elsewhere(written: str) -> None:
    settings = Settings(**json.loads(written))
    with model_store(settings) as store:
        assert store is not None
        fetch(open_repository(settings), "mine", store)


def test_processes_that_want_the_same_model_at_once_leave_one_whole_model(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    publish(install(there(tmp_path)), "mine", store)
    kept = {"models", "models_from", "store_access_key", "download_part"}
    written = settings.model_dump(mode="json", include=kept) | {"store_secret_key": "secret"}
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_fetch_elsewhere, args=(json.dumps(written),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert open_repository(settings).verify("mine") == ()


def test_what_a_killed_process_left_of_another_version_is_removed(
    settings: Settings, store: S3Bucket, tmp_path: Path
) -> None:
    publish(install(there(tmp_path), version="2"), "mine", store)
    stale = open_repository(settings).root / ".incoming" / "mine" / "1"
    stale.mkdir(parents=True)
    (stale / "model.bin.part").write_bytes(b"x")
    fetch(open_repository(settings), "mine", store)
    assert not stale.exists()


def test_a_damaged_model_is_replaced(settings: Settings, store: S3Bucket, tmp_path: Path) -> None:
    published = publish(install(there(tmp_path)), "mine", store)
    models = open_repository(settings)
    fetch(models, "mine", store)
    models.file(published, "model.bin").write_bytes(b"short")
    fetch(models, "mine", store)
    assert models.verify("mine") == ()
    assert not any((models.root / ".incoming" / "mine").iterdir())
