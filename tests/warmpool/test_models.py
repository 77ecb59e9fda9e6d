"""A worker's models: loaded, put under a budget, switched when the deployer changes a name, while requests run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bus.contracts import Contract, ModelManifest
from bus.errors import BusUnavailableError, ModelNotFoundError, ModelTooLargeError, WorkerStartError
from functions.model import FunctionModel
from functions.spec import FunctionSpec
from runtime.engines.identity import content_digest
from runtime.engines.onnx import OnnxSession
from runtime.repository import Catalog, Repository
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency
from tests.runtime.engines.small_model import install, weight
from warmpool.models import WorkerModels, check_pinned

X = np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)


async def handle(context: Any, inputs: Contract) -> Contract:
    return inputs


def setup(repository: Repository) -> OnnxSession:
    return OnnxSession(repository.file(repository.resolve("tiny"), "model.onnx"), threads=1)


def spec(name: str = "test.tiny", *models: str) -> FunctionSpec:
    return FunctionSpec(
        name=name, inputs=Contract, outputs=Contract, handler=handle, setup=setup, models=models or ("tiny",)
    )


TAKES_MADE = replace(spec("test.second"), made_for=lambda inputs: None)


class Deployment:
    """One worker's models over a folder."""

    def __init__(self, root: Path, budget: int | None = None, pinned: tuple[str, ...] = ()) -> None:
        self.repository = Repository(root, catalog=Catalog(()))
        self.residency = Residency(
            {} if budget is None else {"cpu": budget}, ledger=MemoryLedger(root / ".memory.json")
        )
        self.announced: list[str] = []
        self.away, self.missed = False, asyncio.Event()
        self.models = WorkerModels(self.repository, self.residency, self._announce, pinned)

    async def _announce(self, manifest: ModelManifest) -> None:
        if self.away:
            self.missed.set()
            raise BusUnavailableError("no bus")
        self.announced.append(manifest.ref)


@asynccontextmanager
async def watching(deployment: Deployment) -> AsyncIterator[None]:
    task = asyncio.create_task(deployment.models.watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run(model: FunctionModel) -> str:
    """One run, checked against the version that it says it is of; returns that version."""
    async with model.hold() as held:
        (found,) = await asyncio.to_thread(held.model.run, {"x": X})
    version = held.refs[0].partition("@")[2]
    np.testing.assert_allclose(found, X @ weight(seed=int(version)), rtol=1e-4, atol=1e-4)
    return version


async def until(model: FunctionModel, version: str) -> int:
    """Run again and again until that version answers; returns how many runs it took."""
    runs = 1
    async with asyncio.timeout(60):
        while await run(model) != version:
            runs += 1
    return runs


async def test_models_are_loaded_announced_and_measured(tmp_path: Path) -> None:
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path)
    model = await deployment.models.add(spec())
    assert [one.name for one in deployment.residency.residents()] == ["test.tiny"]
    assert await run(model) == "1"
    assert deployment.announced == ["tiny@1"]
    async with watching(deployment), asyncio.timeout(30):
        while deployment.repository.resolve("tiny").memory_nbytes is None:
            await asyncio.sleep(0.01)
    content = content_digest(deployment.repository.resolve("tiny"))[:24]
    remembered = MemoryLedger(tmp_path / ".memory.json").get(f"test.tiny {content} cpu")
    assert remembered == deployment.repository.resolve("tiny").memory_nbytes


async def test_what_is_in_memory_is_listed_by_what_it_is_made_of_or_by_its_function(tmp_path: Path) -> None:
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path)
    await deployment.models.add(spec("test.first"))
    await deployment.models.add(spec("test.second"))
    await deployment.models.add(replace(spec("test.plain"), models=(), setup=lambda repository: object()))
    assert deployment.models.resident.keys() == {"tiny@1", "test.plain"}
    total = sum(one.nbytes for one in deployment.residency.residents())
    assert sum(deployment.models.resident.values()) == total


async def test_a_model_that_is_not_installed_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        await Deployment(tmp_path).models.add(spec("test.large", "large"))


async def test_a_model_that_no_run_will_ever_have_is_told_at_the_start(tmp_path: Path) -> None:
    """And not by each of its runs, while its function counts as ready."""
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path, budget=1)
    with pytest.raises(ModelTooLargeError, match="raise OMNIBUS_MODEL_MEMORY or choose a smaller model"):
        await deployment.models.add(spec())
    assert deployment.residency.residents() == ()


async def test_what_does_not_fit_beside_the_others_comes_when_it_is_used(tmp_path: Path) -> None:
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path, budget=150 << 20, pinned=("test.pinned",))
    content = content_digest(deployment.repository.resolve("tiny"))[:24]
    for name in ("test.pinned", "test.a", "test.b"):
        MemoryLedger(tmp_path / ".memory.json").put(f"{name} {content} cpu", 60 << 20)  # as if measured before
    models = {name: await deployment.models.add(spec(name)) for name in ("test.pinned", "test.a", "test.b")}

    def loaded() -> set[str]:
        return {one.name for one in deployment.residency.residents()}

    assert loaded() == {"test.pinned", "test.a"}
    for name in ("test.b", "test.a", "test.pinned"):
        assert await run(models[name]) == "1"
        assert loaded() >= {"test.pinned", name}
        assert len(loaded()) == 2


async def test_no_request_fails_while_an_alias_is_moved_back_and_forth(tmp_path: Path) -> None:
    for version in "12":
        install(tmp_path, version=version, seed=int(version))
    deployment = Deployment(tmp_path)
    deployment.repository.alias("tiny", "tiny@1")
    model = await deployment.models.add(spec())
    async with watching(deployment):
        assert await run(model) == "1"
        for version in "21":
            deployment.repository.alias("tiny", f"tiny@{version}")
            await asyncio.gather(*(until(model, version) for _ in range(8)))
    assert deployment.announced == ["tiny@1", "tiny@2", "tiny@1"]
    assert deployment.residency.refs("test.tiny") == ("tiny@1",)
    assert all(one.leases == 0 for one in deployment.residency.residents())


async def test_what_was_made_for_the_old_version_meets_it_while_the_new_one_takes_its_place(tmp_path: Path) -> None:
    """Two stages, of which the second one takes only what the first one made with the same version."""
    for version in "12":
        install(tmp_path, version=version, seed=int(version))
    deployment = Deployment(tmp_path)
    deployment.repository.alias("tiny", "tiny@1")
    first, second = [await deployment.models.add(one) for one in (spec("test.first"), TAKES_MADE)]

    async def request() -> str:
        made = await run(first)
        async with second.hold(f"tiny@{made}") as held:
            (found,) = await asyncio.to_thread(held.model.run, {"x": X})
        np.testing.assert_allclose(found, X @ weight(seed=int(made)), rtol=1e-4, atol=1e-4)
        return made

    async with watching(deployment), asyncio.timeout(60):
        deployment.repository.alias("tiny", "tiny@2")
        while await request() != "2":
            pass


async def test_a_version_that_is_installed_while_requests_run_is_taken(tmp_path: Path) -> None:
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path)
    model = await deployment.models.add(spec())
    async with watching(deployment):
        assert await run(model) == "1"
        install(tmp_path / "staging", version="2", seed=2)
        (tmp_path / "staging" / "tiny" / "2").rename(tmp_path / "tiny" / "2")
        await until(model, "2")


async def test_a_damaged_version_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(tmp_path, version="1", seed=1)
    deployment = Deployment(tmp_path)
    model = await deployment.models.add(spec())
    install(tmp_path / "staging", version="2", seed=2)
    (tmp_path / "staging" / "tiny" / "2" / "model.data").write_bytes(b"")
    async with watching(deployment):
        (tmp_path / "staging" / "tiny" / "2").rename(tmp_path / "tiny" / "2")
        async with asyncio.timeout(60):
            while "goes on with the version that it has" not in caplog.text:
                assert await run(model) == "1"
    assert await run(model) == "1"


async def test_what_is_loaded_late_is_of_the_version_that_its_results_say(tmp_path: Path) -> None:
    for version in "12":
        install(tmp_path, version=version, seed=int(version))
    deployment = Deployment(tmp_path, budget=100 << 20)
    deployment.repository.alias("tiny", "tiny@1")
    content = content_digest(deployment.repository.resolve("tiny"))[:24]
    for name in ("test.first", "test.late"):
        MemoryLedger(tmp_path / ".memory.json").put(f"{name} {content} cpu", 60 << 20)  # as if measured before
    await deployment.models.add(spec("test.first"))
    late = await deployment.models.add(spec("test.late"))
    assert [one.name for one in deployment.residency.residents()] == ["test.first"]
    deployment.repository.alias("tiny", "tiny@2")  # nobody has looked at it yet
    assert await run(late) == "1"


async def test_a_bus_that_is_away_for_a_moment_does_not_end_the_watch(tmp_path: Path) -> None:
    for version in "12":
        install(tmp_path, version=version, seed=int(version))
    deployment = Deployment(tmp_path)
    deployment.repository.alias("tiny", "tiny@1")
    model = await deployment.models.add(spec())
    deployment.away = True
    async with watching(deployment):
        deployment.repository.alias("tiny", "tiny@2")
        await until(model, "2")
        async with asyncio.timeout(30):
            await deployment.missed.wait()
            deployment.away = False
            while deployment.announced != ["tiny@1", "tiny@2"]:
                await asyncio.sleep(0.01)
        deployment.repository.alias("tiny", "tiny@1")
        await until(model, "1")


async def test_a_setup_that_breaks_on_a_version_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for version in "123":
        install(tmp_path, version=version, seed=int(version))

    def breaks(repository: Repository) -> OnnxSession:
        if repository.resolve("tiny").version == "2":
            raise KeyError("hidden")
        return setup(repository)

    deployment = Deployment(tmp_path)
    deployment.repository.alias("tiny", "tiny@1")
    model = await deployment.models.add(replace(spec(), setup=breaks))
    async with watching(deployment):
        deployment.repository.alias("tiny", "tiny@2")
        async with asyncio.timeout(30):
            while "goes on with the version that it has" not in caplog.text:
                assert await run(model) == "1"
        deployment.repository.alias("tiny", "tiny@3")
        await until(model, "3")


@pytest.mark.parametrize("name", ["test.tiny", "tiny", "tiny@1", "small"])
async def test_what_is_pinned_is_a_function_or_a_model_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    install(tmp_path, version="1", seed=1)
    repository = Repository(tmp_path, catalog=Catalog(()))
    repository.alias("small", "tiny")
    check_pinned((name,), {"test.tiny"}, repository)
    deployment = Deployment(tmp_path, pinned=(name, "test.another"))
    await deployment.models.add(spec())
    assert [one.pinned for one in deployment.residency.residents()] == [True]


def test_what_is_pinned_and_is_nothing_is_told(tmp_path: Path) -> None:
    install(tmp_path, version="1", seed=1)
    repository = Repository(tmp_path, catalog=Catalog(()))
    with pytest.raises(WorkerStartError, match="OMNIBUS_PINNED: 'tyni' is no function here, and no model 'tyni'"):
        check_pinned(("tiny", "tyni"), {"test.tiny"}, repository)
