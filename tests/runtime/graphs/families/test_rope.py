"""Rotary positions against transformers' own functions, in both forms that configurations have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.decoder.rotary import tables
from runtime.graphs.decoder.shape import Rotary
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.rope import rope, trained_context

HEAD_DIM, LONGEST = 32, 256
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope", "original_max_position_embeddings": 64,
    "short_factor": [1 + place / 10 for place in range(16)], "long_factor": [2.0 + place for place in range(16)],
}  # fmt: skip


def config(context: int | None = None, **values: Any) -> ModelConfig:
    return ModelConfig({"max_position_embeddings": LONGEST, **values}, context)


def reference(scaling: dict[str, Any], theta: float, tokens: int | None = None) -> tuple[np.ndarray, float]:
    whole = LlamaConfig(
        hidden_size=4 * HEAD_DIM, num_attention_heads=4, head_dim=HEAD_DIM, max_position_embeddings=LONGEST,
        rope_parameters={"rope_theta": theta, **scaling},
    )  # fmt: skip
    frequencies, gain = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](whole, "cpu", seq_len=tokens)
    return frequencies.numpy(), gain


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        LLAMA3,
        YARN,
        {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.9, "truncate": False},
        LONGROPE,
        {**LONGROPE, "attention_factor": 1.2},
    ],
    ids=lambda scaling: "-".join(map(str, list(scaling.values())[:2])),
)
def test_frequencies_and_gain_are_those_of_the_reference(scaling: dict[str, Any], theta: float) -> None:
    right, gain = reference(scaling, theta)
    oldest = {"type" if name == "rope_type" else name: value for name, value in scaling.items()}
    for found in (
        rope(config(rope_parameters={"rope_theta": theta, **scaling}), HEAD_DIM),
        rope(config(rope_theta=theta, rope_scaling=scaling), HEAD_DIM),
        rope(config(rope_theta=theta, rope_scaling=oldest), HEAD_DIM),
    ):
        np.testing.assert_allclose(found.frequencies, right, rtol=1e-5)
        assert found.gain == pytest.approx(gain)


def test_a_part_of_a_head_may_be_left_alone() -> None:
    right = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    for found in (
        rope(config(rope_parameters={"partial_rotary_factor": 0.5}), HEAD_DIM),
        rope(config(partial_rotary_factor=0.5), HEAD_DIM),
    ):
        np.testing.assert_allclose(found.frequencies, right)


def test_long_factors_are_taken_where_more_than_the_trained_context_is_served() -> None:
    given: dict[str, Any] = {"rope_theta": 10_000.0, "rope_scaling": LONGROPE}
    assert trained_context(config(**given)) == 64
    short, long = reference(LONGROPE, 10_000.0)[0], reference(LONGROPE, 10_000.0, tokens=65)[0]
    np.testing.assert_allclose(rope(config(context=64, **given), HEAD_DIM).frequencies, short, rtol=1e-5)
    np.testing.assert_allclose(rope(config(context=65, **given), HEAD_DIM).frequencies, long, rtol=1e-5)


def test_the_context_is_never_longer_than_the_models() -> None:
    assert trained_context(config()) == LONGEST
    assert trained_context(config(context=100)) == 100
    assert trained_context(config(context=1000)) == LONGEST


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": ["linear"]},
        {**YARN, "mscale": 1.0},
    ],
)
def test_a_scaling_that_is_not_built_here_is_refused(scaling: dict[str, Any]) -> None:
    with pytest.raises(ModelUnsupportedError):
        rope(config(rope_scaling=scaling), HEAD_DIM)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": 0},
        {"rope_type": "linear", "factor": "two"},
        {**LONGROPE, "short_factor": [1.0]},
        {**LONGROPE, "short_factor": "many"},
        {"mrope_section": [16, 24]},
        "linear",
    ],
)
def test_a_scaling_that_makes_no_sense_is_refused(scaling: Any) -> None:
    with pytest.raises(ModelCorruptError):
        rope(config(rope_scaling=scaling), HEAD_DIM)


def test_tables_hold_the_angles_of_every_position() -> None:
    cosine, sine = tables(Rotary((1.0, 0.5), gain=2.0), 4)
    np.testing.assert_allclose(cosine[3], 2 * np.cos([3, 1.5]), rtol=1e-6)
    np.testing.assert_allclose(sine[3], 2 * np.sin([3, 1.5]), rtol=1e-6)
