"""Configurations in which a value is wrong: the shape that they give has the weights' sizes, or they are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import family_of, text_model
from runtime.weights.folder import SafetensorsFolder
from tests.runtime import reference
from tests.runtime.graphs.families.cases import CASES

SMALL = [case for case in CASES if case.name in ("llama", "qwen2", "gemma3", "phi3")]
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**70) | st.floats() | st.sampled_from([0, 1, 2, 3, 1e308, "x"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.text(max_size=5), SCALARS, max_size=3)


@pytest.fixture(scope="module", params=SMALL, ids=lambda case: case.name)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.save(request.param.model(), tmp_path_factory.mktemp("saved"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=st.data())
def test_a_wrong_value_anywhere_is_refused_by_name_or_changes_no_size(data: st.DataObject, saved: Path) -> None:
    values: dict[str, Any] = json.loads((saved / "config.json").read_text())
    rope = values["rope_parameters"]
    inside = next((part for part in rope.values() if isinstance(part, dict)), rope)
    changed = data.draw(st.sampled_from([values, rope, inside]))
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(VALUES)
    config = text_model(ModelConfig(values, context=64))
    try:
        family = family_of(config)
        shape = family.shape(config)
        DecoderWeights(SafetensorsFolder(saved), family, shape)
    except (ModelCorruptError, ModelUnsupportedError):
        return
    assert shape.context <= 64
    numbers = [shape.norm_epsilon, shape.embedding_scale, shape.attention_scale or 1.0, shape.logit_softcap]
    for rotary in shape.rotaries:
        numbers += [*rotary.frequencies, rotary.gain]
    assert all(math.isfinite(number) for number in numbers)
