"""What is built can be served, and what a configuration leaves out is what its reference takes for it."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from runtime.graphs.encoders.known import ENCODERS, encoders_of
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import text_model
from runtime.graphs.families.omitted import OMITTED
from runtime.multimodal.known import FAMILIES


def test_every_family_that_is_built_is_served_and_the_other_way_round() -> None:
    built = [name for family in ENCODERS for name in family.model_types]
    assert len(built) == len(set(built))
    assert set(built) == set(FAMILIES)


def test_a_model_that_takes_text_alone_has_no_encoders() -> None:
    assert encoders_of(ModelConfig({"model_type": "llama"})) is None


@pytest.mark.parametrize(("kind", "config"), [("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2")])
def test_what_a_text_model_leaves_out_is_its_references_default(kind: str, config: str) -> None:
    right: Any = getattr(transformers, f"{config}Config")()
    for name, value in OMITTED[kind].items():
        assert getattr(right, name) == value or (name == "sliding_window" and kind == "qwen2"), name
    whole = ModelConfig({"model_type": "idefics2", "text_config": {"model_type": kind, "hidden_size": 64}})
    found = text_model(whole)
    assert found.size("hidden_size") == 64
    assert found.size("num_hidden_layers") == right.num_hidden_layers
    assert found.size("vocab_size") == right.vocab_size


def test_what_the_whole_model_says_counts_where_its_text_model_is_silent() -> None:
    whole = {"model_type": "idefics2", "eos_token_id": 7, "tie_word_embeddings": True}
    found = text_model(ModelConfig({**whole, "text_config": {"model_type": "mistral", "sliding_window": None}}))
    assert found.get("eos_token_id") == 7
    assert found.flag("tie_word_embeddings")
    assert found.get("sliding_window") is None
