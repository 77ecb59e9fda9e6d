"""Every family that is offered is one that is compared with the reference."""

from __future__ import annotations

from collections import Counter

import pytest

from bus.errors import ModelUnsupportedError
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import FAMILIES, family_of
from tests.runtime.graphs.families.cases import CASES

COMPARED_BY_POSITIONS = {"qwen2_vl_text", "qwen3_vl_text"}


def test_every_family_has_a_case_that_is_compared_with_the_reference() -> None:
    compared = {case.model().config.model_type for case in CASES} | COMPARED_BY_POSITIONS
    assert [family.model_types for family in FAMILIES if not compared & set(family.model_types)] == []


def test_no_two_families_claim_the_same_type() -> None:
    claims = Counter(name for family in FAMILIES for name in family.model_types)
    assert [name for name, count in claims.items() if count > 1] == []


def test_an_unknown_type_is_named_with_all_that_are_known() -> None:
    with pytest.raises(ModelUnsupportedError) as found:
        family_of(ModelConfig({"model_type": "mamba"}))
    assert "'mamba'" in str(found.value)
    assert all(name in str(found.value) for family in FAMILIES for name in family.model_types)
