from __future__ import annotations

from pathlib import Path

import pytest

from bus.contracts import Contract, Tier
from bus.errors import StackConfigError
from functions.deployment import Deployment, group_settings, read_deployment
from functions.spec import FunctionSpec
from functions.warm import WarmSpec


class Nothing(Contract):
    pass


async def handler(context: object, inputs: Nothing) -> Nothing:
    return inputs


def spec(name: str, group: str, **warm: object) -> FunctionSpec:
    return FunctionSpec(
        name=name, inputs=Nothing, outputs=Nothing, handler=handler, group=group, warm=WarmSpec().changed(warm)
    )


SPECS = [spec("image.encode", "encode", min=1), spec("text.embed", "encode", keep_alive_s=30), spec("speak", "speech")]


def written(folder: Path, text: str) -> Path:
    path = folder / "warm.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path):
    path = written(tmp_path, "functions:\n  speak:\n    cold_start_opt: warm_pool:2\n")
    deployment = read_deployment(path, SPECS)
    assert deployment.of(SPECS[2]) == WarmSpec(min=2)
    assert deployment.of(SPECS[0]) == SPECS[0].warm


def test_defaults_hold_for_all_and_yield_to_what_is_said_of_one(tmp_path: Path):
    path = written(tmp_path, "defaults: {keep_alive_s: 600, tier: hot}\nfunctions: {speak: {warm: {keep_alive_s: 5}}}")
    deployment = read_deployment(path, SPECS)
    assert deployment.of(SPECS[0]) == WarmSpec(min=1, keep_alive_s=600, tier=Tier.HOT)
    assert deployment.of(SPECS[2]) == WarmSpec(keep_alive_s=5, tier=Tier.HOT)


def test_an_empty_file_changes_nothing(tmp_path: Path):
    assert read_deployment(written(tmp_path, ""), SPECS) == Deployment()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("functions: {image.encod: {warm: {min: 1}}}", "no function 'image.encod'; did you mean 'image.encode'?"),
        ("functions: {speak: {warm: {min: -1}}}", "function 'speak': min is a whole number from 0 to 9999, not -1"),
        ("functions: {image.encode: {warm: {max: 1, min: 2}}}", "function 'image.encode': min is 2 and max is 1"),
        ("functions: {speak: {cold_start_opt: two}}", "function 'speak': cold_start_opt is like 'warm_pool:2'"),
        ("functions: [speak]", "`functions` is a map, not ['speak']"),
        ("defaults: {tier: boiling}", "defaults: tier is one of template, primed, loaded, hot, not 'boiling'"),
        ("workers: 3", "a map with `defaults` and `functions`"),
        ("functions: {", "is no YAML"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_place(tmp_path: Path, text: str, said: str):
    path = written(tmp_path, text)
    with pytest.raises(StackConfigError) as refused:
        read_deployment(path, SPECS)
    assert said in refused.value.message
    assert str(path) in refused.value.message


def test_every_problem_of_a_file_is_told_at_once(tmp_path: Path):
    path = written(tmp_path, "functions:\n  speak: {warm: {min: -1, tier: x}}\n  listen: {warm: {min: 1}}\n")
    with pytest.raises(StackConfigError) as refused:
        read_deployment(path, SPECS)
    assert len(refused.value.details["problems"]) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(StackConfigError, match="cannot be read: No such file"):
        read_deployment(tmp_path / "none.yaml", SPECS)


def test_the_most_demanding_function_of_a_group_decides():
    specs = [
        spec("a", "one", min=1, max=2, keep_alive_s=10, target_wait_ms=50, look_ahead=False),
        spec("b", "one", max=6, keep_alive_s=90, tier="hot", target_wait_ms=200),
        spec("c", "one"),
    ]
    expected = WarmSpec(min=1, max=6, keep_alive_s=90, tier=Tier.HOT, target_wait_ms=50, look_ahead=True)
    assert group_settings(specs) == {"one": expected}


def test_the_order_of_functions_does_not_matter():
    assert group_settings(SPECS) == group_settings(SPECS[::-1])


def test_a_floor_raises_the_least_and_where_needed_the_most():
    groups = group_settings(SPECS, floor={"speech": 6, "encode": 0, "other": 1})
    assert (groups["speech"].min, groups["speech"].max) == (6, 6)
    assert groups["encode"].min == 1
    assert set(groups) == {"encode", "speech"}
