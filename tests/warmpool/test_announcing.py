"""The gateway learns from the bus which models there are, and by which names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bus.contracts import ModelManifest
from bus.contracts.codec import decode
from bus.memory import MemoryBus
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.ports import KeyValue
from functions.gateway.installed_models import InstalledModels
from functions.spec import ModelChoice
from runtime.repository import Catalog, Repository
from tests.bus.nats_server import nats_server
from tests.runtime.engines.small_model import install
from tests.warmpool.test_models import spec
from warmpool.announcing import Announcer


def serving(family: str) -> ModelChoice:
    return ModelChoice(name="chosen", of=lambda inputs: None, serves=lambda manifest: manifest.family == family)


CHOOSES = replace(spec("test.chooses"), models=(), choice=serving("test"))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    for version in "12":
        install(tmp_path, version=version)
    return Repository(tmp_path, catalog=Catalog(()))


async def announced(bucket: KeyValue) -> dict[str, tuple[str, ...]]:
    found = [decode(ModelManifest, value) for value in (await bucket.entries()).values()]
    return {one.ref: one.aliases for one in found}


async def test_what_can_be_chosen_is_announced_by_all_names_that_mean_it(repository: Repository) -> None:
    bucket = await MemoryBus().bucket("models")
    repository.alias("old", "tiny@1")
    repository.alias("mine", "tiny")
    await Announcer(bucket, repository, [CHOOSES]).tell()
    assert await announced(bucket) == {"tiny@1": ("old",), "tiny@2": ("mine", "tiny")}


async def test_what_no_function_serves_is_not_announced(repository: Repository) -> None:
    bucket = await MemoryBus().bucket("models")
    await Announcer(bucket, repository, [replace(CHOOSES, choice=serving("poem"))]).tell()
    assert await announced(bucket) == {}
    await Announcer(bucket, repository, [spec("test.fixed", "tiny")]).tell()
    assert await announced(bucket) == {"tiny@2": ("tiny",)}


async def test_what_changes_is_seen_and_what_is_removed_is_taken_back(repository: Repository) -> None:
    bucket = await MemoryBus().bucket("models")
    announcer = Announcer(bucket, repository, [CHOOSES])
    task = asyncio.create_task(announcer.watch())
    async with asyncio.timeout(30), InstalledModels(bucket) as installed:
        for change, expected in (
            (lambda: repository.alias("mine", "tiny"), {"tiny@2": ("mine", "tiny")}),
            (lambda: repository.remove("tiny@2"), {"tiny@1": ("mine", "tiny")}),
            (lambda: repository.remove("tiny@1"), {}),
        ):
            change()
            while {one.ref: one.aliases for one in installed} != expected:
                await asyncio.sleep(0.01)
    task.cancel()


async def test_what_nobody_announces_any_more_is_not_there(repository: Repository) -> None:
    now_s = 0.0
    bucket = await MemoryBus().bucket("models")
    announcer = Announcer(bucket, repository, [CHOOSES])
    async with InstalledModels(bucket, clock=lambda: now_s) as installed:
        await announcer.tell()
        await asyncio.sleep(0)
        assert [one.ref for one in installed] == ["tiny@2"]
        now_s = 59.0
        await announcer.tell(again=True)
        await asyncio.sleep(0)
        now_s = 118.0
        assert [one.ref for one in installed] == ["tiny@2"]
        await announcer.tell()  # which changes nothing, and so says nothing
        await asyncio.sleep(0)
        now_s = 120.0
        assert list(installed) == []


async def test_versions_that_differ_by_a_sign_are_told_apart(tmp_path: Path) -> None:
    for version in ("1.0", "1_0"):
        install(tmp_path / "models", version=version)
    repository = Repository(tmp_path / "models", catalog=Catalog(()))
    repository.alias("one", "tiny@1.0")
    repository.alias("other", "tiny@1_0")
    with nats_server(tmp_path / "nats") as url:
        async with NatsBus(NatsConfig(url=url)) as bus:
            await bus.setup()
            bucket = await bus.bucket("models")
            await Announcer(bucket, repository, [CHOOSES]).tell()
            assert (await announced(bucket)).keys() == {"tiny@1.0", "tiny@1_0"}
