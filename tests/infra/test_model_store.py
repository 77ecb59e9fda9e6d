"""Models in an object store: published from one machine, fetched by another one, against a real S3 server."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ByteSize

from bus.contracts import ModelFile, ModelManifest
from bus.errors import (
    EngineError,
    InvalidInputError,
    ModelCorruptError,
    ModelNotFoundError,
    ModelSourceError,
    StoreUnavailableError,
)
from bus.store.bucket import S3Bucket
from infra.model_store import bring_models, model_store, open_repository, pull_models
from infra.settings import Settings
from runtime.repository import Catalog, CatalogEntry, Repository, Step
from runtime.repository.published import fetch, publish
from tests.bus.store.s3_server import s3_server

WEIGHTS = bytes(range(251)) * 4001
CONFIG = b'{"layers": 2}'


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def settings(s3_endpoint: str, tmp_path: Path) -> Settings:
    return Settings(
        models=tmp_path / "here" / "models",
        models_from=f"s3://models-{secrets.token_hex(4)}/team?endpoint=http://{s3_endpoint}",
        store_access_key="access",
        store_secret_key="secret",
        download_part=ByteSize(100_000),
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[S3Bucket]:
    with model_store(settings) as opened:
        assert opened is not None
        opened.ensure()
        yield opened


def install(
    root: Path, model: str = "mine", version: str = "1", weights: bytes = WEIGHTS, **more: object
) -> Repository:
    """A repository with a model that was built there."""
    folder = root / model / version
    (folder / "tokens").mkdir(parents=True)
    files = {"model.bin": weights, "tokens/config.json": CONFIG, "empty": b""}
    for path, data in files.items():
        (folder / path).write_bytes(data)
    manifest = ModelManifest(
        id=model,
        version=version,
        family="test",
        modalities_in=("text",),
        modalities_out=("text",),
        files=tuple(
            ModelFile(path=path, sha256=hashlib.sha256(data).hexdigest(), nbytes=len(data))
            for path, data in sorted(files.items())
        ),
        source=("file:///elsewhere",),
        license="MIT",
    ).model_copy(update=more)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Repository(root)


def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "models"


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
