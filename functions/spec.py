"""What a developer declares about a function."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bus.contracts import Contract
from bus.contracts.codec import digest_of
from bus.errors import ContractError

if TYPE_CHECKING:
    from functions.context import Context
    from runtime.repository import Repository

_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*){0,3}")

Handler = Callable[["Context[Any]", Any], Awaitable[Contract]]
"""`async def handler(context, inputs) -> outputs`."""

Setup = Callable[["Repository"], Any]
"""Loads what the handler needs, once per worker, before the worker takes its first message; runs in a thread."""


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """A stateless handler and all that the framework must know to run it.

    Attributes:
        name: Unique, such as `image.encode`; part of the subject.
        version: Counted up when the same inputs give other outputs; part of every cache key.
        inputs: Contract of the inputs.
        outputs: Contract of the outputs.
        handler: The code.
        setup: Loads the model; its result is `context.model`.
        models: Ids or aliases of the models that it needs in the repository.
        made_for: Tells which `id@version` its inputs were made for by an earlier stage, so that they meet that version
            also while another one takes its place; None: any version will do.
        group: Functions of one group share worker processes.
        slots: How many messages a worker admits at once; at least one per lane, so that no lane
            waits for another one's message to finish before it may even be pulled.
        timeout_s: The longest that one run may take.
        max_attempts: Deliveries before the event becomes a dead letter.
        cacheable: The outputs depend on the inputs alone, so a run that was done before is skipped.
        streams: Publishes token chunks while it runs.
    """

    name: str
    inputs: type[Contract]
    outputs: type[Contract]
    handler: Handler = field(repr=False)
    setup: Setup | None = field(default=None, repr=False)
    version: int = 1
    models: tuple[str, ...] = ()
    made_for: Callable[[Any], str | None] | None = field(default=None, repr=False)
    group: str = "default"
    slots: int = 4
    timeout_s: float = 60.0
    max_attempts: int = 5
    cacheable: bool = False
    streams: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not _NAME.fullmatch(self.name):
            problems.append(f"name {self.name!r} is not one to four dotted lower-case words")
        if self.slots < 3:
            problems.append(f"slots is {self.slots}; a function has at least 3, one for each lane")
        if self.timeout_s <= 0:
            problems.append(f"timeout_s is {self.timeout_s}; it is more than 0")
        if self.max_attempts < 1:
            problems.append(f"max_attempts is {self.max_attempts}; it is at least 1")
        if problems:
            raise ContractError(f"function {self.name!r}: " + "; ".join(problems), problems=problems)

    @cached_property
    def digest(self) -> str:
        """Changes with everything that can change the outputs."""
        schemas = [self.inputs.model_json_schema(), self.outputs.model_json_schema()]
        return digest_of([self.name, self.version, list(self.models), *schemas])
