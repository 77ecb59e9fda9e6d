"""Three stages that do nothing: what is left is the framework."""

from __future__ import annotations

from typing import Any

from bus.contracts import Contract
from functions import Context, function


class Payload(Contract):
    """Anything."""

    data: Any


@function("noop.first", group="noop", slots=64)
async def first(context: Context[Any], inputs: Payload) -> Payload:
    """Hand the payload on."""
    return inputs


@function("noop.second", group="noop", slots=64)
async def second(context: Context[Any], inputs: Payload) -> Payload:
    """Hand the payload on."""
    return inputs


@function("noop.third", group="noop", slots=64)
async def third(context: Context[Any], inputs: Payload) -> Payload:
    """Hand the payload on."""
    return inputs
