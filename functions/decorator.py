"""`@function`: how a handler becomes a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_type_hints

from bus.contracts import Contract
from bus.errors import ContractError
from functions.registry import registry
from functions.spec import FunctionSpec, Handler
from functions.warm import WarmSpec


def function(name: str, *, cold_start_opt: str | None = None, **settings: Any) -> Callable[[Handler], Handler]:
    """Declare and register an async handler as a function.

    The contracts are read from the handler's annotations: `async def f(context, inputs: In) -> Out`.

    Args:
        name: Unique dotted name, such as `image.encode`.
        cold_start_opt: Short form of `warm`: `warm_pool:2` is two workers that are always there.
        **settings: Any other field of `FunctionSpec`.

    Raises:
        ContractError: No annotations, contracts that are none, a name that is taken, or both forms of `warm`.
    """
    if cold_start_opt is not None:
        if "warm" in settings:
            raise ContractError(f"function {name!r}: `warm` and `cold_start_opt` say the same; leave one of them out")
        settings["warm"] = WarmSpec.short(cold_start_opt)

    def register(handler: Handler) -> Handler:
        inputs, outputs = _contracts(name, handler)
        registry.add(FunctionSpec(name=name, inputs=inputs, outputs=outputs, handler=handler, **settings))
        return handler

    return register


def _contracts(name: str, handler: Handler) -> tuple[type[Contract], type[Contract]]:
    if not inspect.iscoroutinefunction(handler):
        raise ContractError(f"function {name!r}: the handler is an `async def`; put blocking work in context.run()")
    parameters = list(inspect.signature(handler).parameters)
    if len(parameters) != 2:
        raise ContractError(f"function {name!r}: a handler takes (context, inputs), not ({', '.join(parameters)})")
    # Only these two are resolved: the context's annotation may name a model class that is imported for types alone.
    wanted = {name: handler.__annotations__.get(name) for name in (parameters[1], "return")}
    hints = get_type_hints(SimpleNamespace(__annotations__=wanted), handler.__globals__)
    pair = (hints.get(parameters[1]), hints.get("return"))
    for role, kind in zip(("inputs", "the return value"), pair, strict=True):
        if not (isinstance(kind, type) and issubclass(kind, Contract)):
            raise ContractError(f"function {name!r}: {role} is annotated with a Contract, not {kind!r}")
    return pair  # type: ignore[return-value]
