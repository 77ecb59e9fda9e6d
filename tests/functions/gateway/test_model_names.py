"""Which names a door takes: those of its own model, and of every model that a worker has announced."""

from __future__ import annotations

from typing import Any

import pytest

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError, ModelUnsupportedError
from functions.flow.catalog import Pipelines
from functions.gateway.model_names import Chosen, ModelNames
from functions.registry import registry

registry.load("functions.stages")


def manifest(name: str, *aliases: str, version: str = "1", **fields: Any) -> ModelManifest:
    given = {
        "family": "llama", "modalities_in": ("text",), "modalities_out": ("text",), "files": (), "source": (),
        "license": "MIT", "dims": {"layers": 1, "hidden": 8, "vocabulary": 9}, "parameters": {"end_tokens": [2]},
    }  # fmt: skip
    return ModelManifest(**{**given, "id": name, "version": version, "aliases": (name, *aliases), **fields})


OWN = manifest("smollm2-135m-instruct", "chat")
MINE = manifest("mine", "my-chat", version="3")
EARS = manifest("ears", family="whisper", modalities_in=("audio",), parameters={})


def names(*installed: ModelManifest) -> ModelNames:
    return ModelNames(Pipelines.load(registry), registry, installed)


@pytest.mark.parametrize("name", ["chat", "smollm2", "smollm2-135m-instruct"])
def test_the_doors_own_model_has_its_names_whether_it_is_announced_or_not(name: str) -> None:
    assert names().choose("chat", name) == Chosen("smollm2-135m-instruct")
    assert names(OWN, MINE).choose("chat", name) == Chosen("smollm2-135m-instruct", None, OWN)


@pytest.mark.parametrize(("name", "goes_as"), [("mine", "mine@3"), ("my-chat", "mine@3"), ("mine@3", "mine@3")])
def test_an_announced_model_is_chosen_by_any_of_its_names(name: str, goes_as: str) -> None:
    assert names(OWN, MINE).choose("chat", name) == Chosen("mine", goes_as, MINE)


def test_a_version_that_no_name_means_is_left_to_the_workers() -> None:
    assert names(OWN, MINE).choose("chat", "mine@2") == Chosen("mine", "mine@2", MINE)


def test_a_name_of_the_doors_own_model_that_the_deployer_gave_to_another_one_means_that() -> None:
    own, mine = OWN.model_copy(update={"aliases": ()}), manifest("mine", "smollm2-135m-instruct", "chat")
    found = names(own, mine).choose("chat", "chat")
    assert found.manifest == mine


@pytest.mark.parametrize("name", ["chat", "smollm2", "smollm2-135m-instruct"])
def test_the_doors_own_names_mean_the_model_that_was_put_in_its_own_ones_place(name: str) -> None:
    own = OWN.model_copy(update={"aliases": ("chat", "smollm2")})
    mine = manifest("mine", "smollm2-135m-instruct")
    assert names(own, mine).choose("chat", name) == Chosen("smollm2-135m-instruct", None, mine)
    assert names(own, mine).choose("chat", own.ref) == Chosen("smollm2-135m-instruct", own.ref, own)


def test_a_name_of_nothing_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'gpt' here; this endpoint takes: chat, mine, smollm2"):
        names(OWN, MINE).choose("chat", "gpt")


def test_a_model_of_another_kind_is_refused_with_what_it_is() -> None:
    with pytest.raises(ModelUnsupportedError, match="ears@1 is a whisper model from audio to text"):
        names(EARS).choose("chat", "ears")


def test_every_model_that_a_door_takes_is_listed_once() -> None:
    listed = list(names(OWN, MINE, EARS))
    assert [one for one in listed if listed.count(one) > 1] == []
    assert {"smollm2-135m-instruct", "mine", "whisper-base"} <= set(listed)
    assert "ears" not in listed
    assert names(MINE).find("my-chat").id == "mine"
