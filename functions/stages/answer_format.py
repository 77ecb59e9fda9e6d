"""What a written answer has to look like."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bus.contracts import Contract


class AnswerFormat(Contract):
    """A form that the whole answer has; an answer that reaches its token limit is cut short all the same."""

    type: Literal["json_object", "json_schema", "regex"]
    definition: str = Field(
        default="",
        max_length=64 * 1024,
        description="The JSON schema as JSON, or the regular expression; nothing for `json_object`.",
    )
