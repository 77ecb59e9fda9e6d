"""Two functions of one group, of which one may lack its model: loaded into real workers through OMNIBUS_FUNCTIONS.

Files of the folder `PARTED_FOLDER` say what waits: `hold-setup` the set-up of the first one, `hold-run` its runs.
Whoever loads it writes its process id to `loading`.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

from bus.contracts import Contract
from functions import Context, function
from runtime.engines.onnx import OnnxSession
from runtime.repository import Repository
from tests.delivery.switching import Product

GROUP = "parted"


class Number(Contract):
    """A number."""

    value: float


def setup(name: str, repository: Repository) -> Product:
    """Load what the name means, when it may."""
    if name == "tiny":
        (Path(os.environ["PARTED_FOLDER"]) / "loading").write_text(str(os.getpid()))
    while name == "tiny" and _held("setup"):
        time.sleep(0.01)
    manifest = repository.resolve(name)
    return Product(OnnxSession(repository.file(manifest, "model.onnx"), threads=1), manifest.ref)


@function("parted.here", group=GROUP, setup=partial(setup, "tiny"), models=("tiny",), slots=3)
async def here(context: Context[Product], inputs: Number) -> Number:
    """Run the model that is there."""
    while _held("run"):
        context.check()
        await asyncio.sleep(0.01)
    return Number(value=await context.run(context.model.of, inputs.value))


@function("parted.late", group=GROUP, setup=partial(setup, "late"), models=("late",), slots=3)
async def late(context: Context[Product], inputs: Number) -> Number:
    """Run the model that comes later."""
    return Number(value=await context.run(context.model.of, inputs.value))


def _held(what: str) -> bool:
    return (Path(os.environ["PARTED_FOLDER"]) / f"hold-{what}").exists()
