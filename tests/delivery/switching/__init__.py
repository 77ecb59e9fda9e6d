"""Two stages on one model, of which the second one takes only what the first one made with the same version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bus.contracts import Contract
from bus.errors import InvalidInputError
from functions import Context, function
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository

GROUP = "switching"


class Number(Contract):
    """A number."""

    value: float


class Made(Contract):
    """What the first stage made of it, and with which version."""

    value: float
    version: str


@dataclass(frozen=True, slots=True)
class Product:
    """The model: the sum of x · w, x being the number in every place."""

    session: OnnxSession
    ref: str

    def of(self, value: float) -> float:
        """One run."""
        (found,) = self.session.run({"x": np.full((1, 64), value, np.float32)})
        return float(found.sum())


def setup(repository: Repository) -> Product:
    """Load whatever the name means now."""
    manifest = repository.resolve("tiny")
    return Product(OnnxSession(repository.file(manifest, "model.onnx"), threads=1), manifest.ref)


@function("switching.first", group=GROUP, setup=setup, models=("tiny",))
async def first(context: Context[Product], inputs: Number) -> Made:
    """Run the model, and say with which version."""
    return Made(value=await context.run(context.model.of, inputs.value), version=context.model.ref)


@function("switching.second", group=GROUP, setup=setup, models=("tiny",), made_for=lambda inputs: str(inputs.version))
async def second(context: Context[Product], inputs: Made) -> Made:
    """Run the model again on what it made.

    Raises:
        InvalidInputError: It was made with another version.
    """
    if inputs.version != context.model.ref:
        raise InvalidInputError(f"made with {inputs.version}, here is {context.model.ref}")
    return Made(value=await context.run(context.model.of, inputs.value), version=context.model.ref)
