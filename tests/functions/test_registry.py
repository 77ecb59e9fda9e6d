"""A function's name means one handler."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest

from bus.contracts import Contract
from bus.errors import ContractError, UnknownFunctionError
from functions.context import Context
from functions.registry import Registry
from functions.spec import FunctionSpec


class Empty(Contract):
    """Nothing."""


async def run(context: Context[Any], inputs: Empty) -> Empty:
    return inputs


SPEC = FunctionSpec(name="test.run", inputs=Empty, outputs=Empty, handler=run)


def test_the_same_name_in_another_module_is_refused_even_if_the_handlers_are_called_alike() -> None:
    other = FunctionType(run.__code__, {}, "run")
    other.__module__, other.__qualname__ = "somebody.elses", "run"
    registry = Registry()
    registry.add(SPEC)
    with pytest.raises(ContractError, match=r"declared twice: in .*test_registry and in somebody\.elses"):
        registry.add(replace(SPEC, handler=other))
    assert registry.get("test.run").handler is run


def test_a_handler_that_is_wrapped_takes_the_place_of_its_own() -> None:
    @functools.wraps(run)
    async def wrapped(context: Context[Any], inputs: Empty) -> Empty:
        return await run(context, inputs)

    registry = Registry()
    registry.add(SPEC)
    registry.add(replace(SPEC, handler=wrapped))
    assert registry.get("test.run").handler is wrapped


def test_an_unknown_function_names_the_nearest() -> None:
    registry = Registry()
    registry.add(SPEC)
    with pytest.raises(UnknownFunctionError, match=r"did you mean 'test\.run'"):
        registry.get("test.rum")
