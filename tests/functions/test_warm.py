from __future__ import annotations

import pytest

from bus.contracts import Contract, Tier
from bus.errors import ContractError
from functions.decorator import function
from functions.registry import registry
from functions.warm import DEFAULT_MAX, WarmSpec, read_warm


class Nothing(Contract):
    pass


def test_nothing_is_kept_unless_it_is_asked_for():
    assert WarmSpec().min == 0
    assert WarmSpec().keep_alive_s is None


def test_the_short_form_is_a_number_of_workers_that_are_always_there():
    assert WarmSpec.short("warm_pool:2") == WarmSpec(min=2)


def test_the_short_form_may_ask_for_more_than_the_usual_most():
    warm = WarmSpec.short(f"warm_pool:{DEFAULT_MAX + 3}")
    assert (warm.min, warm.max) == (DEFAULT_MAX + 3, DEFAULT_MAX + 3)


@pytest.mark.parametrize("text", ["warm_pool", "warm_pool:", "warm_pool:-1", "warm_pool:2 ", "pool:2", "", 2, None])
def test_a_short_form_that_is_none_is_refused_with_the_right_form(text: object):
    with pytest.raises(ContractError, match="is like 'warm_pool:2'"):
        WarmSpec.short(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"min": -1}, "min is a whole number from 0 to 9999, not -1"),
        ({"min": True}, "min is a whole number from 0 to 9999, not True"),
        ({"max": 0}, "max is a whole number from 1 to 9999, not 0"),
        ({"max": 10**9}, "max is a whole number from 1 to 9999, not 1000000000"),
        ({"min": 10_000, "max": 10_000}, "min is a whole number from 0 to 9999, not 10000"),
        ({"min": 3, "max": 2}, "min is 3 and max is 2"),
        ({"keep_alive_s": -5}, "keep_alive_s is seconds from 0"),
        ({"keep_alive_s": float("nan")}, "keep_alive_s is seconds from 0"),
        ({"tier": "warmish"}, "tier is one of template, primed, loaded, hot, not 'warmish'"),
        ({"target_wait_ms": "soon"}, "target_wait_ms is milliseconds from 0, not 'soon'"),
        ({"look_ahead": 1}, "look_ahead is true or false, not 1"),
        ({"keep_alive": 5}, "'keep_alive' is not a setting; did you mean 'keep_alive_s'?"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings: dict[str, object], said: str):
    with pytest.raises(ContractError) as refused:
        read_warm({"warm": settings})
    assert said in refused.value.message


def test_every_problem_is_told_at_once():
    with pytest.raises(ContractError) as refused:
        read_warm({"warm": {"min": -1, "tier": "none", "wait": 1}})
    assert len(refused.value.details["problems"]) == 3


def test_what_is_not_said_stays_as_it_was():
    base = WarmSpec(min=1, keep_alive_s=30, tier=Tier.HOT)
    assert read_warm({"warm": {"max": 7}}, base) == WarmSpec(min=1, max=7, keep_alive_s=30, tier=Tier.HOT)


def test_a_tier_that_was_read_is_a_tier():
    assert read_warm({"warm": {"tier": "hot"}}).tier is Tier.HOT


@pytest.mark.parametrize("settings", [None, {}, {"cold_start": "warm_pool:1"}, {"warm": {}, "cold_start_opt": "x"}])
def test_one_form_and_only_one_is_taken(settings: object):
    with pytest.raises(ContractError, match="either `warm` or `cold_start_opt`"):
        read_warm(settings)


def test_tiers_are_in_order():
    assert [tier.rank for tier in (Tier.TEMPLATE, Tier.PRIMED, Tier.LOADED, Tier.HOT)] == [0, 1, 2, 3]


def test_a_function_declares_the_short_form(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))  # the process's own, as it was, for other tests

    @function("test.warm_short", cold_start_opt="warm_pool:3")
    async def handler(context: object, inputs: Nothing) -> Nothing:
        return inputs

    assert registry.get("test.warm_short").warm == WarmSpec(min=3)


def test_a_function_that_declares_both_forms_is_refused():
    with pytest.raises(ContractError, match="leave one of them out"):
        function("test.warm_twice", cold_start_opt="warm_pool:3", warm=WarmSpec())
