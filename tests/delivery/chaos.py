"""Makes every function die where a test wants it: loaded into real workers through OMNIBUS_FUNCTIONS.

A stage named in a file `kill-<stage>` of the folder `CHAOS_FOLDER` does its work once, then, before its outputs
are stored or published, writes its process id to `at-<stage>` and waits to be killed.
"""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from bus.contracts import Contract
from functions.context import Context
from functions.registry import registry
from functions.spec import FunctionSpec

FOLDER = Path(os.environ["CHAOS_FOLDER"])


def _doomed(spec: FunctionSpec) -> FunctionSpec:
    @functools.wraps(spec.handler)
    async def handler(context: Context[Any], inputs: Contract) -> Contract:
        outputs = await spec.handler(context, inputs)
        try:
            (FOLDER / f"kill-{context.event.stage}").unlink()
        except FileNotFoundError:
            return outputs
        _tell(context.event.stage)
        return await asyncio.get_running_loop().create_future()

    # Without the cache, so that every stage of every request really runs.
    return replace(spec, handler=handler, cacheable=False)


def _tell(stage: str) -> None:
    draft = FOLDER / f"draft-{stage}"
    draft.write_text(str(os.getpid()))
    draft.rename(FOLDER / f"at-{stage}")


for _spec in list(registry):
    registry.add(_doomed(_spec))
