"""Configurations of multimodal models in which a value is wrong: the family takes pictures, or they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob
from runtime.graphs.encoders.known import ENCODERS
from runtime.graphs.encoders.preprocessing import Preprocessing
from runtime.graphs.encoders.tensors import EncoderTensors
from runtime.graphs.families.config import ModelConfig
from runtime.multimodal.family import Detail, Film
from runtime.multimodal.known import FAMILIES
from runtime.weights.folder import SafetensorsFolder
from runtime.weights.tensors import CheckedTensors
from tests.runtime.multimodal import idefics2_pair, idefics3_pair, llava_pair
from tests.runtime.multimodal.drawn import scene

MAKERS: dict[str, Callable[[Path, Path], Any]] = {
    "idefics2": lambda folder, root: idefics2_pair.make(folder, root, splitting=True),
    "smolvlm": lambda folder, root: idefics3_pair.make(folder, root, "smolvlm"),
    "llava_onevision": llava_pair.make,
}
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**70) | st.floats() | st.sampled_from([0, 1, 2, 3, 1e308, "x"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)
PICTURES = [scene(1, 1), scene(90, 40)]


@dataclass(frozen=True)
class Saved:
    """A folder, and what its encoders are built from."""

    folder: Path
    family: EncoderFamily
    tokens: dict[str, int]

    def values(self) -> dict[str, dict[str, Any]]:
        """Everything that is configured, by file."""
        names = ("config.json", "preprocessor_config.json", "processor_config.json")
        paths = [self.folder / name for name in names]
        return {path.name: json.loads(path.read_text()) for path in paths if path.is_file()}

    def build(self, values: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Build the encoders; the parameters of their serving class."""
        configs = {name: ModelConfig(found, file=name) for name, found in values.items()}
        shared = configs.get("preprocessor_config.json", ModelConfig({}))
        processor = configs.get("processor_config.json", ModelConfig({}))
        image = processor.inner("image_processor") or shared
        read = CheckedTensors(EncoderTensors(SafetensorsFolder(self.folder), self.family.homes))
        job = EncoderJob(
            config=configs["config.json"],
            preprocessing=Preprocessing(processor, image, image, shared),
            read=read,
            hidden=64,
            context=1024,
            tokens=self.tokens,
        )
        return dict(self.family.build(job).parameters)


@pytest.fixture(scope="module", params=MAKERS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("saved")
    MAKERS[request.param](folder, tmp_path_factory.mktemp("root"))
    words = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    family = next(one for one in ENCODERS if request.param in one.model_types)
    return Saved(folder, family, {one["content"]: one["id"] for one in words})


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """A document and all objects in it."""
    inside = [one for value in values.values() if isinstance(value, dict) for one in objects(value)]
    return [values, *inside]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(data=st.data())
def test_a_wrong_value_anywhere_is_refused_by_name_or_leaves_a_family_that_works(
    data: st.DataObject, saved: Saved
) -> None:
    values = saved.values()
    changed = data.draw(st.sampled_from([one for found in values.values() for one in objects(found) if one]))
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(VALUES)
    kind = saved.family.model_types[0]
    try:
        parameters = saved.build(values)
    except (ModelCorruptError, ModelUnsupportedError):
        return
    family = FAMILIES[kind](json.loads(json.dumps(parameters)))
    for picture in PICTURES:
        for detail in (Detail(), Detail(level="low", max_tokens=5, alone=False)):
            prepared = family.image(picture, detail)
            assert min(family.resolution(*picture.size, detail)) >= 1
            assert prepared.regions is not None
            assert np.isfinite(prepared.regions).all()
    if "video" in saved.family.modalities:
        moments = family.frames(3.0, 25.0, Detail())
        assert family.video(Film([scene(90, 60)] * len(moments), moments, 3.0), Detail()).tokens
