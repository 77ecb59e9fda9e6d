"""A pipeline, compiled: who runs after whom and which values travel where."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import Field

from bus.contracts import Contract
from bus.contracts.codec import digest, encode

END = "end"
"""The virtual stage behind the last ones: when it is reached, the result is published."""

REQUEST = "request"
"""What a reference starts with when it means an input of the request, as in `request.messages`."""


class Source(Contract):
    """Where an input comes from."""

    ref: str | None = Field(default=None, description="`stage.output` or `request.input`; None: `value` is meant.")
    value: Any = Field(default=None, description="A constant of the pipeline file.")
    optional: bool = Field(default=False, description="The stage runs without it, too.")


class PlanStage(Contract):
    """One stage, with everything that the worker which finished the one before needs to know of it."""

    name: str
    function: str
    inputs: dict[str, Source]
    upstream: tuple[str, ...] = Field(description="Stages it waits for; empty: it starts with the request.")
    downstream: tuple[str, ...]
    live: tuple[str, ...] = Field(description="References that stages behind it need and it does not make.")


class Plan(Contract):
    """A compiled pipeline. Stages are in topological order, the virtual `end` is last."""

    schema_name = "omnibus.plan"
    schema_version = 1

    pipeline: str
    description: str = ""
    inputs: dict[str, bool] = Field(description="Inputs of the request by name; True: required.")
    stages: tuple[PlanStage, ...]

    @cached_property
    def digest(self) -> str:
        """Names this plan, and no other, wherever it is referred to."""
        return digest(encode(self))

    @cached_property
    def by_name(self) -> dict[str, PlanStage]:
        """Stages by name."""
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Stages that wait for none."""
        return tuple(stage.name for stage in self.stages if not stage.upstream)

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions that the pipeline needs."""
        return tuple(sorted({stage.function for stage in self.stages if stage.name != END}))


def is_absent(value: Any) -> bool:
    """Whether a value counts as not being there: None, or a list or map of nothing."""
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def resolve(stage: PlanStage, values: dict[str, Any]) -> dict[str, Any] | None:
    """The stage's inputs by name; None when a required one is absent, so that the stage is skipped."""
    inputs: dict[str, Any] = {}
    for name, source in stage.inputs.items():
        value = source.value if source.ref is None else values.get(source.ref)
        if not is_absent(value):
            inputs[name] = value
        elif not source.optional:
            return None
    return inputs
