from __future__ import annotations

import copy
from typing import Any

import pytest

from bus.contracts.codec import decode, encode
from bus.errors import PipelineInvalidError
from functions.flow.catalog import BUILT_IN, Pipelines
from functions.flow.parse import parse
from functions.flow.plan import END, Plan
from functions.registry import Registry
from tests.functions.words import DIAMOND, Log, word_functions


def compiled(change: dict[str, Any] | None = None) -> Plan:
    return parse({**copy.deepcopy(DIAMOND), **(change or {})}, word_functions(Log()))


def test_stages_come_in_topological_order_with_the_end_last():
    names = [stage.name for stage in compiled().stages]
    assert names[-1] == END
    assert names.index("big") < names.index("both") < names.index("say")


def test_a_stage_knows_what_the_stages_behind_it_need():
    plan = compiled()
    assert plan.by_name["big"].live == ("request.more", "small.words")
    assert plan.by_name["say"].live == ("request.more",)
    assert plan.by_name["both"].upstream == ("big", "small")
    assert plan.roots == ("big", "small")


def test_the_digest_names_the_plan_and_survives_the_wire():
    plan = compiled()
    assert compiled().digest == plan.digest
    assert decode(Plan, encode(plan)).digest == plan.digest
    changed = copy.deepcopy(DIAMOND)
    changed["stages"]["big"]["function"] = "words.lower"
    assert parse(changed, word_functions(Log())).digest != plan.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "unknown key 'extra'"),
        ({"pipeline": "No Name"}, "lower-case name"),
        ({"inputs": {"words": "maybe"}}, "`required` or `optional`"),
        ({"stages": {}}, "`stages` maps names to stages"),
        ({"outputs": {}}, "names at least one value"),
        ({"outputs": {"text": "say.nothing"}}, "has no output 'nothing'"),
        ({"outputs": {"text": "nobody.text"}}, "no stage 'nobody'"),
        ({"stages": {"a": {"function": "words.uper", "inputs": {}}}}, "did you mean 'words.upper'"),
        ({"stages": {"a": {"function": "words.say", "inputs": {"word": "request.words"}}}}, "no input 'word'"),
        (
            {"stages": {"a": {"function": "words.merge", "inputs": {"right": "request.words"}}}},
            "needs the input 'left'",
        ),
        (
            {"stages": {"a": {"function": "words.say", "inputs": {"words": "request.nothing"}}}},
            "has no input 'nothing'",
        ),
        ({"stages": {"a": {"function": "words.say", "inputs": {"words": "what?ever"}}}}, "not 'what?ever'"),
        ({"stages": {"end": {"function": "words.say", "inputs": {}}}}, "other than 'end'"),
        (
            {
                "stages": {
                    "a": {"function": "words.upper", "inputs": {"words": "b.words"}},
                    "b": {"function": "words.upper", "inputs": {"words": "a.words"}},
                },
                "outputs": {"words": "a.words"},
            },
            "wait for each other",
        ),
    ],
)
def test_a_wrong_pipeline_is_refused_with_the_reason(change: dict[str, Any], message: str):
    with pytest.raises(PipelineInvalidError, match=message.replace("?", r"\?")):
        compiled(change)


def test_all_problems_are_told_at_once():
    with pytest.raises(PipelineInvalidError) as caught:
        compiled({"extra": 1, "pipeline": "No Name", "outputs": {}})
    assert len(caught.value.details["problems"]) == 3


def test_something_that_is_no_map_is_refused():
    with pytest.raises(PipelineInvalidError, match="is a map"):
        parse(["pipeline"], Registry())


def test_the_built_in_pipelines_compile():
    from functions.registry import registry

    registry.load("functions.stages")
    names = {plan.pipeline for plan in Pipelines.load(registry, [BUILT_IN])}
    explain = {"explain-mask", "explain-draw"}
    assert names == {"chat", "native", "transcribe", "live", "speak", "embed", "label-space", "ocr"} | explain
