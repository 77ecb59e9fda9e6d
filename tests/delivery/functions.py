"""Three stages that tell when they run and can be held, for tests that kill their workers.

A stage named in a file `hold-<stage>` of the folder `CHAIN_FOLDER` does not finish while that file is there.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from bus.contracts import Contract
from functions import Context, function


class Link(Contract):
    """A number and the stages that have seen it."""

    number: int
    seen: tuple[str, ...] = ()


def _tell(path: Path, line: str) -> None:
    with open(path, "a") as log:
        log.write(line)


async def _pass(context: Context[Any], inputs: Link) -> Link:
    folder = Path(os.environ["CHAIN_FOLDER"])
    stage = context.event.stage
    _tell(folder / f"ran-{stage}", f"{context.event.request} {context.attempt} {os.getpid()}\n")
    while (folder / f"hold-{stage}").exists():
        context.check()
        await asyncio.sleep(0.005)
    return Link(number=inputs.number + 1, seen=(*inputs.seen, stage))


@function("chain.one", group="chain", slots=64)
async def one(context: Context[Any], inputs: Link) -> Link:
    """Add one."""
    return await _pass(context, inputs)


@function("chain.two", group="chain", slots=64)
async def two(context: Context[Any], inputs: Link) -> Link:
    """Add one."""
    return await _pass(context, inputs)


@function("chain.three", group="chain", slots=64)
async def three(context: Context[Any], inputs: Link) -> Link:
    """Add one."""
    return await _pass(context, inputs)
