"""Folders of safetensors, written by the reference's own writer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from bus.errors import ModelCorruptError
from runtime.weights.folder import INDEX, SafetensorsFolder
from tests.runtime import reference
from tests.runtime.graphs.families.cases import CASES


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return CASES[0].model()


@pytest.mark.parametrize("size", ["5GB", "100KB"], ids=["one file", "several files"])
def test_every_tensor_is_found_whatever_file_it_is_in(size: str, model: PreTrainedModel, tmp_path: Path) -> None:
    folder = reference.save(model, tmp_path, shard=size)
    assert (folder / INDEX).exists() == (size == "100KB")
    tensors = SafetensorsFolder(folder)
    right = model.state_dict()
    assert tensors.shapes.keys() == right.keys()
    for name, weight in right.items():
        np.testing.assert_array_equal(tensors.tensor(name), weight.numpy())
    with pytest.raises(ModelCorruptError, match=r"'lm_head\.bias'"):
        tensors.tensor("lm_head.bias")


@pytest.fixture
def shards(model: PreTrainedModel, tmp_path: Path) -> Path:
    return reference.save(model, tmp_path, shard="100KB")


def test_a_file_that_is_missing_is_named(shards: Path) -> None:
    gone = sorted(shards.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelCorruptError, match=gone.name):
        SafetensorsFolder(shards)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": {}}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": "../model.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
    ],
)
def test_an_index_that_is_no_index_is_refused(text: str, shards: Path) -> None:
    (shards / INDEX).write_text(text)
    with pytest.raises(ModelCorruptError, match=r"index\.json"):
        SafetensorsFolder(shards)


def test_an_index_that_names_the_wrong_file_is_refused(shards: Path) -> None:
    index = json.loads((shards / INDEX).read_text())
    places = sorted(set(index["weight_map"].values()))
    index["weight_map"]["lm_head.weight"] = next(
        place for place in places if place != index["weight_map"]["lm_head.weight"]
    )
    (shards / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelCorruptError, match=r"'lm_head\.weight'"):
        SafetensorsFolder(shards)


def test_a_folder_without_weights_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"model\.safetensors"):
        SafetensorsFolder(tmp_path)
