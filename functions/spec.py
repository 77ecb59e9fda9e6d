"""What a developer declares about a function."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bus.contracts import Contract, ModelManifest
from bus.contracts.codec import digest_of
from bus.errors import ContractError, ModelNotFoundError, ModelUnsupportedError
from functions.warm import WarmSpec

if TYPE_CHECKING:
    from functions.context import Context
    from runtime.repository import Repository

_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*){0,3}")

Handler = Callable[["Context[Any]", Any], Awaitable[Contract]]
"""`async def handler(context, inputs) -> outputs`."""

Setup = Callable[["Repository"], Any]
"""Loads what the handler needs, once per worker, before the worker takes its first message; runs in a thread."""

WarmUp = Callable[[Any], Awaitable[object]]
"""Runs what `setup` returned once on the shapes that runs will meet, so that the first of them is no slower."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """How a run says which model it is for.

    Attributes:
        name: What `setup` resolves, and then gets the chosen model for: the function's model where that is the default,
            or a name of its own where there is no default.
        of: Tells from the inputs which model is meant, by any name that the repository knows; None: the default.
        serves: Whether the function can serve a model.
    """

    name: str
    of: Callable[[Any], str | None] = field(repr=False)
    serves: Callable[[ModelManifest], bool] = field(repr=False)

    def find(self, repository: Repository, name: str) -> ModelManifest:
        """The model of that name, when the function can serve it.

        Raises:
            ModelNotFoundError: Nothing of that name is installed.
            ModelUnsupportedError: It is of another kind.
        """
        try:
            manifest = repository.resolve(name)
        except ModelNotFoundError as error:
            # Whoever asks need not know where models are.
            raise ModelNotFoundError(
                f"no model {name!r} is installed here; `omnibus models ls` lists those that are",
                model=name,
                param="model",
            ) from error
        return self.check(manifest)

    def means(self, repository: Repository, manifest: ModelManifest) -> bool:
        """Whether the default is that model now."""
        try:
            return repository.resolve(self.name).ref == manifest.ref
        except ModelNotFoundError:
            return False

    def check(self, manifest: ModelManifest) -> ModelManifest:
        """The model itself, when the function can serve it.

        Raises:
            ModelUnsupportedError: It is of another kind.
        """
        if not self.serves(manifest):
            came, goes = (", ".join(kinds) or "nothing" for kinds in (manifest.modalities_in, manifest.modalities_out))
            raise ModelUnsupportedError(
                f"{manifest.ref} is a {manifest.family} model from {came} to {goes}, which cannot do this; choose "
                "another one",
                model=manifest.ref,
                param="model",
            )
        return manifest


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
        warm_up: Runs the model once, where a worker is to be hot; None: its first run is like the others.
        models: Ids or aliases of the models that it needs in the repository.
        made_for: Tells which `id@version` its inputs were made for by an earlier stage, so that they meet that version
            also while another one takes its place; None: any version will do.
        choice: How each run chooses its model; None: all runs have the same.
        group: Functions of one group share worker processes.
        slots: How many messages a worker admits at once; at least one per lane, so that no lane
            waits for another one's message to finish before it may even be pulled.
        timeout_s: The longest that one run may take.
        max_attempts: Deliveries before the event becomes a dead letter.
        cacheable: The outputs depend on the inputs alone, so a run that was done before is skipped.
        streams: Publishes token chunks while it runs.
        warm: How many workers wait for it, how ready, and for how long; a deployment file may change it.
    """

    name: str
    inputs: type[Contract]
    outputs: type[Contract]
    handler: Handler = field(repr=False)
    setup: Setup | None = field(default=None, repr=False)
    warm_up: WarmUp | None = field(default=None, repr=False)
    version: int = 1
    models: tuple[str, ...] = ()
    made_for: Callable[[Any], str | None] | None = field(default=None, repr=False)
    choice: ModelChoice | None = None
    group: str = "default"
    slots: int = 4
    timeout_s: float = 60.0
    max_attempts: int = 5
    cacheable: bool = False
    streams: bool = False
    warm: WarmSpec = field(default_factory=WarmSpec)

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
        if self.choice is not None and self.models and self.choice.name not in self.models:
            problems.append(f"choice stands for {self.choice.name!r}, which is none of its models")
        if problems:
            raise ContractError(f"function {self.name!r}: " + "; ".join(problems), problems=problems)

    @cached_property
    def digest(self) -> str:
        """Changes with everything that can change the outputs."""
        # As JSON: a limit in a schema may be larger than msgpack has integers for.
        schemas = [json.dumps(contract.model_json_schema(), sort_keys=True) for contract in (self.inputs, self.outputs)]
        return digest_of([self.name, self.version, list(self.models), *schemas])
