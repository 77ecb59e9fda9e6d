"""What a request can still get to is known from what it has."""

from __future__ import annotations

import pytest

from functions.flow.catalog import Pipelines
from functions.flow.parse import parse
from functions.flow.plan import Plan
from functions.flow.reach import Reach
from functions.registry import load_functions
from tests.functions.words import DIAMOND, Log, word_functions

MEDIA = {"pixels", "look", "waves", "listen", "frames", "watch", "overhear"}
WORDS = {"fuse", "generate", "assemble"}


@pytest.fixture(scope="module")
def chat() -> Plan:
    return Pipelines.load(load_functions()).get("chat")


@pytest.mark.parametrize(
    ("stage", "carried", "expected"),
    [
        ("fuse", [], WORDS),
        ("fuse", ["request.speech"], {*WORDS, "speak"}),
        ("fetch", ["request.messages"], {"fetch", *MEDIA, *WORDS}),
        ("fetch", ["request.messages", "request.read"], {"fetch", "read", *MEDIA, *WORDS}),
        ("fetch", ["request.messages", "request.speech"], {"fetch", *MEDIA, *WORDS, "speak"}),
        ("pixels", ["request.messages"], {"pixels", "look", *WORDS}),
        ("generate", ["request.speech"], {"generate", "speak", "assemble"}),
        ("speak", ["generate.text", "generate.finish_reason", "generate.usage"], {"speak", "assemble"}),
        ("assemble", [], {"assemble"}),
        ("keep", [], {"keep"}),
    ],
)
def test_of_a_chat_it_is_what_its_media_and_its_wishes_need(
    chat: Plan, stage: str, carried: list[str], expected: set[str]
) -> None:
    assert set(Reach().stages(chat, stage, carried)) == expected


@pytest.mark.parametrize("branch", ["big", "small"])
def test_what_another_branch_may_bring_can_be_there(branch: str) -> None:
    plan = parse(DIAMOND, word_functions(Log()))
    assert set(Reach().stages(plan, branch, [])) == {branch, "both", "say"}


def test_it_is_remembered_by_what_it_depends_on(chat: Plan) -> None:
    reach = Reach()
    assert reach.stages(chat, "fuse", ["request.speech"]) is reach.stages(chat, "fuse", ("request.speech",))
    assert reach.stages(chat, "fuse", ["request.speech"]) != reach.stages(chat, "fuse", [])
