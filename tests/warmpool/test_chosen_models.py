"""Each run says which model it is for: loaded on demand under the one budget, refused by name where it cannot be."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bus.errors import ModelNotFoundError, ModelUnsupportedError, OverloadedError
from functions.choosing import ChoosingModel
from functions.model import FunctionModel
from functions.spec import ModelChoice
from runtime.engines.identity import content_digest
from runtime.residency.ledger import MemoryLedger
from tests.runtime.engines.small_model import install, weight
from tests.warmpool.test_models import Deployment, X, spec, watching

CHOICE = ModelChoice(name="tiny", of=lambda inputs: None, serves=lambda manifest: manifest.family == "test")
CHOOSES = replace(spec("test.chooses"), choice=CHOICE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`tiny@1` and `tiny@2`, of which the first one is meant, and a model of another kind."""
    for version in "12":
        install(tmp_path, version=version, seed=int(version))
    install(tmp_path / "other", version="1")
    manifest = (tmp_path / "other" / "tiny" / "1" / "manifest.json").read_text()
    other = tmp_path / "other" / "1"
    (tmp_path / "other" / "tiny" / "1").rename(other)
    (other / "manifest.json").write_text(manifest.replace('"id":"tiny"', '"id":"other"').replace('"test"', '"poem"'))
    Deployment(tmp_path).repository.alias("tiny", "tiny@1")
    return tmp_path


async def version_of(model: FunctionModel, chosen: str | None = None) -> str:
    """One run for a chosen model, checked by hand; the version that ran."""
    async with model.hold(chosen=chosen) as held:
        (found,) = await asyncio.to_thread(held.model.run, {"x": X})
        (ref,) = held.refs
    version = ref.partition("@")[2]
    np.testing.assert_allclose(found, X @ weight(seed=int(version)), rtol=1e-4, atol=1e-4)
    return version


def loaded(deployment: Deployment) -> list[str]:
    return sorted(one.name for one in deployment.residency.residents())


async def test_a_run_gets_the_model_that_it_chooses_and_the_default_otherwise(root: Path) -> None:
    deployment = Deployment(root)
    deployment.repository.alias("second", "tiny@2")
    model = await deployment.models.add(CHOOSES)
    assert loaded(deployment) == ["test.chooses"]
    assert await version_of(model) == "1"
    assert await version_of(model, "second") == "2"
    assert await version_of(model, "tiny@2") == "2"
    assert [await model.refs(name) for name in (None, "second", "tiny")] == [("tiny@1",), ("tiny@2",), ("tiny@1",)]
    assert loaded(deployment) == ["test.chooses", "test.chooses tiny@2"]


@pytest.mark.parametrize("name", ["tiny", "tiny@1"])
async def test_the_default_by_its_name_is_no_second_copy(root: Path, name: str) -> None:
    deployment = Deployment(root)
    model = await deployment.models.add(CHOOSES)
    assert await version_of(model, name) == "1"
    assert loaded(deployment) == ["test.chooses"]


async def test_a_function_without_a_default_loads_nothing_until_it_is_asked(root: Path) -> None:
    deployment = Deployment(root)
    model = await deployment.models.add(replace(CHOOSES, models=()))
    assert loaded(deployment) == []
    with pytest.raises(ModelNotFoundError, match="name one"):
        await version_of(model)
    assert await version_of(model, "tiny") == "1"


@pytest.mark.parametrize("name", ["nothing", "tiny@3", "../other", "/etc", "", "x" * 5000, "a\0b", "other/1", ".locks"])
async def test_a_name_of_nothing_is_not_found_and_no_path_is_told(root: Path, name: str) -> None:
    model = await Deployment(root).models.add(CHOOSES)
    with pytest.raises(ModelNotFoundError) as told:
        await version_of(model, name)
    assert str(root) not in told.value.message


async def test_a_model_of_another_kind_is_refused_with_what_it_is(root: Path) -> None:
    model = await Deployment(root).models.add(CHOOSES)
    with pytest.raises(ModelUnsupportedError, match="other@1 is a poem model from text to text"):
        await version_of(model, "other")


async def test_chosen_models_take_turns_under_the_budget(root: Path) -> None:
    deployment = Deployment(root, budget=100 << 20)
    for version in "12":
        content = content_digest(deployment.repository.resolve(f"tiny@{version}"))[:24]
        MemoryLedger(root / ".memory.json").put(f"test.chooses {content} cpu", 60 << 20)  # as if measured before
    model = await deployment.models.add(CHOOSES)
    for version in "1212":
        assert await version_of(model, f"tiny@{version}") == version
        assert len(loaded(deployment)) == 1
        assert deployment.models.resident.keys() == {f"tiny@{version}"}  # what the lease lists
        assert deployment.models.resident[f"tiny@{version}"] >= 60 << 20


async def test_a_chosen_name_that_means_another_version_gets_it_and_the_old_one_leaves(root: Path) -> None:
    deployment = Deployment(root)
    install(root, version="3", seed=3)
    deployment.repository.alias("mine", "tiny@2")
    model = await deployment.models.add(CHOOSES)
    async with watching(deployment), asyncio.timeout(30):
        assert await version_of(model, "mine") == "2"
        deployment.repository.alias("mine", "tiny@3")
        while await version_of(model, "mine") != "3":
            pass
        while loaded(deployment) != ["test.chooses", "test.chooses tiny@3"]:
            await asyncio.sleep(0.01)


async def test_no_run_fails_while_the_default_changes_places_with_a_chosen_one(root: Path) -> None:
    deployment = Deployment(root)
    model = await deployment.models.add(CHOOSES)
    async with watching(deployment), asyncio.timeout(30):
        assert await version_of(model, "tiny@2") == "2"
        deployment.repository.alias("tiny", "tiny@2")
        while await version_of(model) != "2":
            assert await version_of(model, "tiny@2") == "2"
        assert await version_of(model, "tiny@1") == "1"


async def test_a_model_that_is_removed_is_not_found_from_the_next_look_on(root: Path) -> None:
    deployment = Deployment(root)
    model = await deployment.models.add(CHOOSES)
    assert await version_of(model, "tiny@2") == "2"
    async with watching(deployment), asyncio.timeout(30):
        deployment.repository.remove("tiny@2")
        while loaded(deployment) != ["test.chooses"]:
            await asyncio.sleep(0.01)
    with pytest.raises(ModelNotFoundError):
        await version_of(model, "tiny@2")


@pytest.mark.parametrize("name", ["second", "tiny@2"])
async def test_a_model_that_is_pinned_is_there_from_the_start_and_stays(root: Path, name: str) -> None:
    Deployment(root).repository.alias("second", "tiny@2")
    deployment = Deployment(root, budget=100 << 20, pinned=(name, "other", "test.another"))
    for version in "12":
        content = content_digest(deployment.repository.resolve(f"tiny@{version}"))[:24]
        MemoryLedger(root / ".memory.json").put(f"test.chooses {content} cpu", 60 << 20)  # as if measured before
    model = await deployment.models.add(CHOOSES)
    assert loaded(deployment) == ["test.chooses tiny@2"]  # the default had to leave for it
    assert [one.pinned for one in deployment.residency.residents()] == [True]
    assert await version_of(model, "tiny@2") == "2"
    with pytest.raises(OverloadedError):
        await version_of(model)
    assert isinstance(model, ChoosingModel)
    await model.refresh()
    assert loaded(deployment) == ["test.chooses tiny@2"]
