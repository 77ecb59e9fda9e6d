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


def learned() -> LookAhead:
    ahead = LookAhead()
    for name, seconds in (("fetch", 0.1), ("see", 0.2), ("hear", 0.5), ("generate", 2.0), ("speak", 1.0)):
        ahead.ran("chat", name, seconds)
    return ahead


def test_a_stage_is_due_when_the_longest_way_to_it_is_done():
    due = {one.function: one.after_s for one in learned().expect(CHAT)}
    expected = {"media.fetch": 0, "image.encode": 0.1, "audio.transcribe": 0.1, "generate": 0.6, "speak": 2.6}
    assert due == pytest.approx(expected)


def test_before_anything_is_known_all_is_due_at_once():
    assert {one.after_s for one in LookAhead().expect(CHAT)} == {0.0}


def test_what_most_requests_skip_is_not_started_for_each():
    ahead = learned()
    for _ in range(30):
        ahead.ended(CHAT, frozenset({"fetch", "see", "generate"}))
    functions = [one.function for one in ahead.expect(CHAT)]
    assert functions == ["media.fetch", "image.encode", "generate"]


def test_what_is_reached_again_is_started_again():
    ahead = learned()
    for reached in ([frozenset({"fetch"})] * 30) + ([frozenset({"fetch", "speak"})] * 10):
        ahead.ended(CHAT, reached)
    assert "speak" in {one.function for one in ahead.expect(CHAT)}


def test_the_latest_durations_count_most():
    ahead = learned()
    for _ in range(60):
        ahead.ran("chat", "hear", 5.0)
    assert {one.function: one.after_s for one in ahead.expect(CHAT)}["generate"] == pytest.approx(5.1, rel=0.01)


def test_a_group_is_due_with_the_first_of_its_functions():
    first = by_group(learned().expect(CHAT), GROUPS)
    assert list(first) == ["media", "encode", "speech"] or set(first) == {"media", "encode", "speech"}
    assert first["speech"] == Due("audio.transcribe", 0.1, 1.0)
