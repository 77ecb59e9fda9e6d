from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import InvalidInputError
from runtime.generation.sampling import Sampler, SamplingConfig

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))


def draws(count: int, logits: np.ndarray = LOGITS, **settings: object) -> list[int]:
    sampler = Sampler(SamplingConfig(**settings))  # type: ignore[arg-type]
    return [sampler.choose(logits) for _ in range(count)]


def shares(chosen: list[int], size: int = 4) -> np.ndarray:
    return np.bincount(chosen, minlength=size) / len(chosen)


def test_no_temperature_is_greedy() -> None:
    assert set(draws(20)) == {0}
    assert set(draws(20, temperature=1.5, top_k=1)) == {0}


def test_tokens_come_as_often_as_they_are_likely() -> None:
    np.testing.assert_allclose(shares(draws(20_000, temperature=1.0)), [0.5, 0.25, 0.15, 0.1], atol=0.015)


def test_temperature_sharpens_by_its_inverse_as_exponent() -> None:
    squared = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    np.testing.assert_allclose(shares(draws(20_000, temperature=0.5)), squared / squared.sum(), atol=0.015)


def test_top_k_leaves_the_k_likeliest_in_proportion() -> None:
    np.testing.assert_allclose(shares(draws(20_000, temperature=1.0, top_k=2)), [2 / 3, 1 / 3, 0, 0], atol=0.015)


@pytest.mark.parametrize(("top_p", "left"), [(0.4, {0}), (0.5, {0}), (0.6, {0, 1}), (0.8, {0, 1, 2})])
def test_top_p_leaves_the_fewest_that_reach_it(top_p: float, left: set[int]) -> None:
    assert set(draws(2_000, temperature=1.0, top_p=top_p)) == left


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    assert set(draws(2_000, temperature=1.0, top_k=2, top_p=0.66)) == {0}


def test_a_flat_large_vocabulary_is_sampled_over_all_of_it() -> None:
    flat = np.zeros(4_000, np.float32)
    assert len(set(draws(4_000, flat, temperature=1.0))) > 2_000
    assert max(draws(1_000, flat, temperature=1.0, top_p=0.5)) <= 2_000


@given(st.integers(0, 2**64 - 1), st.floats(0.1, 2), st.floats(0.1, 1), st.integers(0, 10))
def test_a_seed_fixes_the_choice(seed: int, temperature: float, top_p: float, top_k: int) -> None:
    random = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    settings = {"seed": seed, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    assert draws(10, random, **settings) == draws(10, random, **settings)


def test_every_bad_setting_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"max_tokens is 0.*temperature is -1.*top_p is 0.*stop string"):
        SamplingConfig(max_tokens=0, temperature=-1, top_p=0, stop=("",))
