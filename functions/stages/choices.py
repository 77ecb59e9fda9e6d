"""The contracts of an answer's alternatives."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract


class TokenLogprob(Contract):
    """How likely a token was for the model itself, whatever the sampling settings."""

    token: str = Field(description="Its text; bytes that are no character of their own are replaced.")
    utf8: tuple[int, ...] = Field(description="Its bytes, which may be a part of a character.")
    logprob: float = Field(description="Natural logarithm of its probability.")


class ChosenToken(TokenLogprob):
    """A token of an answer, and what else could have stood there."""

    top: tuple[TokenLogprob, ...] = Field(default=(), description="The likeliest tokens, likeliest first.")


class Choice(Contract):
    """One of the answers to a prompt."""

    text: str
    finish_reason: str
    logprobs: tuple[ChosenToken, ...] | None = Field(default=None, description="None: they were not asked for.")
