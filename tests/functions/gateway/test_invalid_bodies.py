"""What is wrong with a body is told by its place in it, whatever forms the field may have."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from functions.gateway.explanations import ExplanationBody
from functions.gateway.invalid_bodies import invalid_body
from functions.gateway.openai_chat_body import ChatBody

PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


def told(body: Any, kind: Any = ChatBody) -> tuple[str | None, str]:
    """The place and the message, for a body that the framework has measured by its model."""
    with pytest.raises(ValidationError) as raised:
        kind.model_validate(body)
    problems = [{**one, "loc": ("body", *one["loc"])} for one in raised.value.errors()]
    error = invalid_body(RequestValidationError(problems, body=body))
    return error.details.get("param"), error.message


def chat(content: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("detail", "x", "Input should be 'low', 'high' or 'auto', not 'x'"),
        ("max_tokens", 0, "Input should be greater than or equal to 1, not 0"),
    ],
)
def test_a_field_of_a_part_is_named_as_it_was_written(field: str, value: Any, words: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,", field: value}}
    place = f"messages.0.content.1.image_url.{field}"
    assert told(chat([PICTURE, picture])) == (place, f"{place}: {words}")


def test_what_is_of_no_form_at_all_is_told_once_for_each_form() -> None:
    place, message = told(chat(5))
    assert place == "messages.0.content"
    assert "valid string" in message
    assert "valid list" in message


def test_what_is_missing_is_named() -> None:
    assert told({"model": "chat"}) == ("messages", "messages: Field required")
    place, message = told(chat([{"image_url": {"url": "data:,"}}]))
    assert (place, message) == ("messages.0.content.0.type", "messages.0.content.0.type: Field required")


def test_what_is_too_much_is_named() -> None:
    assert told({"depth": 1}, ExplanationBody) == ("depth", "depth: Extra inputs are not permitted, not 1")


def test_many_problems_are_counted() -> None:
    parts = [{**PICTURE, "image_url": {"url": "data:,", "max_tokens": 0}} for _ in range(10)]
    place, message = told(chat(parts))
    assert place == "messages.0.content.0.image_url.max_tokens"
    assert message.endswith("; and 2 more")


def test_a_body_of_nothing_but_mistakes_is_told_of_in_a_moment() -> None:
    place, message = told(chat([5] * 30_000))
    assert place == "messages.0.content.0"
    assert message.endswith("more")
