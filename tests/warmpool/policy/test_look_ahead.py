from __future__ import annotations

import pytest

from functions.flow.plan import END, Plan, PlanStage
from warmpool.policy.look_ahead import Due, LookAhead, by_group


def stage(name: str, function: str, *upstream: str) -> PlanStage:
    return PlanStage(name=name, function=function, inputs={}, upstream=upstream, downstream=(), live=())


CHAT = Plan(
    pipeline="chat",
    inputs={},
    stages=(
        stage("fetch", "media.fetch"),
        stage("see", "image.encode", "fetch"),
        stage("hear", "audio.transcribe", "fetch"),
        stage("generate", "generate", "see", "hear"),
        stage("speak", "speak", "generate"),
        stage(END, "", "speak"),
    ),
)
GROUPS = {"media.fetch": "media", "image.encode": "encode", "audio.transcribe": "speech", "speak": "speech"}


SECONDS = {"media.fetch": 0.1, "image.encode": 0.2, "audio.transcribe": 0.5, "generate": 2.0, "speak": 1.0}


def test_a_stage_is_due_when_the_longest_way_to_it_is_done():
    due = {one.function: one.after_s for one in LookAhead().expect(CHAT, SECONDS)}
    expected = {"media.fetch": 0, "image.encode": 0.1, "audio.transcribe": 0.1, "generate": 0.6, "speak": 2.6}
    assert due == pytest.approx(expected)


def test_before_anything_is_known_all_is_due_at_once():
    assert {one.after_s for one in LookAhead().expect(CHAT, {})} == {0.0}


def functions(ahead: LookAhead) -> list[str]:
    return [one.function for one in ahead.expect(CHAT, SECONDS) if one.likely]


def test_what_most_requests_skip_is_not_started_for_each():
    ahead = LookAhead()
    for _ in range(10):
        ahead.learn("chat", "speak", reached=False)
    assert functions(ahead) == ["media.fetch", "audio.transcribe", "image.encode", "generate"]
    assert "speak" in functions(LookAhead())


def test_what_is_skipped_in_one_pipeline_may_be_needed_in_another():
    ahead = LookAhead()
    for _ in range(10):
        ahead.learn("read-aloud", "speak", reached=False)
    assert "speak" in functions(ahead)


def test_what_is_reached_again_is_started_again():
    ahead = LookAhead()
    for reached in [False] * 20 + [True] * 3:
        ahead.learn("chat", "speak", reached=reached)
    assert "speak" in functions(ahead)


def test_a_group_is_due_with_the_first_of_its_functions():
    first = by_group(LookAhead().expect(CHAT, SECONDS), GROUPS)
    assert set(first) == {"media", "encode", "speech"}
    assert first["speech"] == Due("audio.transcribe", 0.1, 1.0)


def test_a_stage_that_a_request_cannot_get_to_is_not_due() -> None:
    due = LookAhead().expect(CHAT, SECONDS, {"hear", "generate"})
    assert {one.function: one.after_s for one in due} == {"audio.transcribe": 0.0, "generate": 0.5}
