"""Several answers, log-probabilities, settings and forms of the answer through OpenAI's door."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import OpenAI


def test_several_answers_come_side_by_side(openai: OpenAI) -> None:
    completion = openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "one two three"}], n=3
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    said = [choice.message.content for choice in completion.choices]
    assert said == ["one two three", "three two one", "three two one"]
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "length", "length"]


def test_several_answers_are_streamed_each_under_its_index(openai: OpenAI) -> None:
    with openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "one two three"}], n=2, stream=True
    ) as stream:
        choices = [choice for chunk in stream for choice in chunk.choices]
    for index, text, reason in ((0, "one two three", "stop"), (1, "three two one", "length")):
        own = [choice for choice in choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in own) == text
        assert own[-1].finish_reason == reason


def test_log_probabilities_are_told_whole_and_streamed(openai: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "häh what"}]
    completion = openai.chat.completions.create(model="chat", messages=messages, logprobs=True, top_logprobs=1)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(one.token, one.logprob) for one in logprobs.content] == [("häh", -3), ("what", -4)]
    assert bytes(logprobs.content[0].bytes or ()) == "häh".encode()
    assert logprobs.content[0].top_logprobs[0].token == "häh"
    with openai.chat.completions.create(model="chat", messages=messages, logprobs=True, stream=True) as stream:
        told = [choice.logprobs.content for chunk in stream for choice in chunk.choices if choice.logprobs]
    assert [one.token for content in told for one in content or ()] == ["häh", "what"]


def test_every_setting_reaches_the_functions(openai: OpenAI) -> None:
    settings: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.25,
        "logit_bias": {"17": -100.0},
        "top_k": 5,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "stop": ["no"],
    }
    completion = openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "settings"}], extra_body=settings
    )
    assert json.loads(completion.choices[0].message.content or "") == settings


@pytest.mark.parametrize(
    ("response_format", "reached"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        ({"type": "regex", "regex": "a+"}, {"type": "regex", "definition": "a+"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "null"}}},
            {"type": "json_schema", "definition": '{"type": "null"}'},
        ),
    ],
)
def test_the_form_of_the_answer_reaches_the_functions(openai: OpenAI, response_format: Any, reached: Any) -> None:
    completion = openai.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "settings"}], response_format=response_format
    )
    assert json.loads(completion.choices[0].message.content or "").get("format") == reached
