from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from bus.errors import InvalidInputError
from runtime.generation.sampler import Sampler, TokenChoice, choose_tokens
from runtime.generation.sampling import SamplingConfig

LOGITS = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))


def draws(count: int, logits: np.ndarray = LOGITS, **settings: object) -> list[int]:
    sampler = Sampler(SamplingConfig(**settings))  # type: ignore[arg-type]
    return [token(choose_tokens([sampler], logits[None].copy())[0]) for _ in range(count)]


def token(choice: TokenChoice | None) -> int:
    assert choice is not None
    return choice.token


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


def test_min_p_leaves_what_is_likely_enough_beside_the_likeliest() -> None:
    assert set(draws(2_000, temperature=1.0, min_p=0.31)) == {0, 1}
    assert set(draws(2_000, temperature=1.0, min_p=0.29)) == {0, 1, 2}


def after(past: list[int], logits: list[float], *, prompt: list[int] | None = None, **settings: object) -> np.ndarray:
    """The logits that a sampler chooses from, once it has chosen `past`."""
    sampler = Sampler(SamplingConfig(**settings), np.array(prompt or [], np.int32))  # type: ignore[arg-type]
    for one in past:
        sampler.observe(one)
    row = np.array([logits], np.float32)
    choose_tokens([sampler], row)
    return row.reshape(-1)


def test_repetition_makes_what_was_asked_or_said_less_likely() -> None:
    logits = after([3], [2.0, -1.0, 3.0, -4.0, 5.0], prompt=[0, 1, -1], repetition_penalty=2.0)
    np.testing.assert_allclose(logits, [1.0, -2.0, 3.0, -8.0, 5.0])


def test_presence_counts_once_and_frequency_each_time_and_the_prompt_never() -> None:
    logits = after([1, 1, 1, 2], [1.0, 1.0, 1.0, 1.0], prompt=[0], presence_penalty=0.5, frequency_penalty=0.25)
    np.testing.assert_allclose(logits, [1.0, 1 - 0.5 - 0.75, 1 - 0.5 - 0.25, 1.0])


def test_a_bias_is_added() -> None:
    np.testing.assert_allclose(after([], [1.0, 2.0, 3.0], logit_bias=((0, 10.0), (2, -100.0))), [11.0, 2.0, -97.0])


def test_a_log_probability_is_the_models_own_whatever_was_set() -> None:
    logits = np.random.default_rng(5).standard_normal((1, 500)).astype(np.float32) * 3
    right = log_softmax(logits[0].astype(np.float64))
    settings = SamplingConfig(temperature=0.7, top_p=0.9, logit_bias=((7, 50.0),), top_logprobs=5)
    (choice,) = choose_tokens([Sampler(settings)], logits)
    assert choice is not None
    assert choice.logprob is not None
    assert choice.token == choice.logprob.token == 7
    assert choice.logprob.logprob == pytest.approx(right[7], abs=1e-4)
    assert [one for one, _ in choice.logprob.top] == np.argsort(-right)[:5].tolist()
    np.testing.assert_allclose([value for _, value in choice.logprob.top], np.sort(right)[::-1][:5], atol=1e-4)


def test_no_alternatives_are_told_unless_asked_for() -> None:
    told, untold = choose_tokens(
        [Sampler(SamplingConfig(top_logprobs=0)), Sampler(SamplingConfig())], np.stack([LOGITS, LOGITS])
    )
    assert told is not None
    assert untold is not None
    assert told.logprob is not None
    assert told.logprob.logprob == pytest.approx(np.log(0.5), abs=1e-6)
    assert told.logprob.top == ()
    assert untold.logprob is None


SETTINGS: list[dict[str, float]] = [
    {},
    {"top_k": 7},
    {"top_k": 400},
    {"top_p": 0.3},
    {"top_p": 0.97},
    {"min_p": 0.2},
    {"top_k": 400, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.0},
    {"temperature": 0.3, "top_p": 0.8},
]


def test_each_row_of_a_step_gets_what_the_definitions_give() -> None:
    random = np.random.default_rng(11)
    for seed in range(20):
        logits = (random.standard_normal((len(SETTINGS), 1000)) * 2).astype(np.float32)
        configs = [SamplingConfig(**{"temperature": 1.0, **settings}, seed=seed) for settings in SETTINGS]  # type: ignore[arg-type]
        chosen = choose_tokens([Sampler(config) for config in configs], logits.copy())
        right = [by_definition(row, config) for row, config in zip(logits, configs, strict=True)]
        assert [token(choice) for choice in chosen] == right


def by_definition(logits: np.ndarray, config: SamplingConfig) -> int:
    """One row in float64: sort, cut, renormalise, invert the distribution; in token order where nothing is cut."""
    if config.temperature == 0:
        return int(logits.argmax())
    share = softmax(logits.astype(np.float64) / config.temperature)
    uniform = np.random.Generator(np.random.PCG64(config.seed)).random()
    order = np.arange(len(share))
    if config.top_k or config.top_p < 1 or config.min_p:
        order = np.argsort(-share, kind="stable")[: config.top_k or None]
        left = share[order] / (share[order].sum() if config.top_k else 1)
        kept = np.concatenate([[0], left.cumsum()[:-1]]) < config.top_p
        order = order[kept & (left >= config.min_p * left[0])]
    steps = share[order].cumsum()
    return int(order[np.searchsorted(steps / steps[-1], uniform, side="right")])


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.999}, {"top_k": 5}, {"min_p": 1e-6}])
@pytest.mark.parametrize("uniform", [0.0, 0.5, np.nextafter(1.0, 0.0)])
def test_what_a_constraint_rules_out_is_never_drawn(settings: dict[str, float], uniform: float) -> None:
    class Third:
        def allowed(self) -> np.ndarray:
            return np.isin(np.arange(1000), [300])

        def accept(self, token: int) -> None:
            assert token == 300

    class Fixed(Sampler):
        def draw(self) -> float:
            return uniform

    sampler = Fixed(SamplingConfig(temperature=1.0, **settings), constraint=Third())  # type: ignore[arg-type]
    logits = np.random.default_rng(2).standard_normal((1, 1000)).astype(np.float32)
    assert token(choose_tokens([sampler], logits)[0]) == 300


def test_logits_that_are_no_numbers_end_their_own_row_only() -> None:
    broken = LOGITS.copy()
    broken[2] = np.nan
    samplers = [Sampler(SamplingConfig(temperature=temperature)) for temperature in (0.0, 1.0, 1.0)]
    choices = choose_tokens(samplers, np.stack([broken, broken, LOGITS]))
    assert choices[:2] == [None, None]
    assert choices[2] is not None


def test_every_bad_setting_is_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"max_tokens is 0.*temperature is -1.*top_p is 0.*stop string"):
        SamplingConfig(max_tokens=0, temperature=-1, top_p=0, stop=("",))
    with pytest.raises(InvalidInputError, match=r"min_p is 2.*repetition_penalty is 0.*presence_penalty.*bias.*is 21"):
        SamplingConfig(min_p=2, repetition_penalty=0, presence_penalty=np.inf, logit_bias=((-1, 0.0),), top_logprobs=21)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_infinite_logit_is_no_number_to_choose_by(temperature: float) -> None:
    infinite = LOGITS.copy()
    infinite[2] = np.inf
    sampler = Sampler(SamplingConfig(temperature=temperature))
    assert choose_tokens([sampler], infinite[None]) == [None]


@pytest.mark.parametrize("penalty", [1e-38, 0.001, 101.0, float("nan"), float("inf")])
def test_a_repetition_penalty_that_logits_cannot_bear_is_refused(penalty: float) -> None:
    with pytest.raises(InvalidInputError, match=r"it is from 0\.01 to 100"):
        SamplingConfig(repetition_penalty=penalty)


@pytest.mark.parametrize("penalty", [0.01, 100.0])
def test_the_strongest_repetition_penalties_still_give_numbers(penalty: float) -> None:
    chosen = after([0, 1], [60.0, -60.0, 0.0], prompt=[0, 1], repetition_penalty=penalty, temperature=1e-4)
    assert np.isfinite(chosen).all()
