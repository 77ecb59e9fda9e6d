"""A process that is told which function to run, and says when it has.

Forked from a template, or as `python _cold.py SOCKET FUNCTION FOLDER TIER`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SETTLES_S = 2.0
"""A worker that is held loaded has had the time to bring its weights into the kernels' layout."""

NO_MODELS = Path(os.devnull)
"""A process that has imported everything has read no vocabulary."""

sys.path.insert(0, str(Path(__file__).parent.parent))


def live(connection: socket.socket, function: str, folder: Path, tier: str) -> None:
    """Run the function once, and again for each line of the parent's; say each time when it was done."""
    import uvloop

    if tier == "alone":
        from warmpool.preload import preload

        preload(models=NO_MODELS)
    uvloop.run(_live(connection, function, folder, tier))


async def _live(connection: socket.socket, function: str, folder: Path, tier: str) -> None:
    began_s = time.monotonic()
    from bus.contracts.codec import validate
    from functions.environment import FunctionEnvironment
    from functions.registry import load_functions

    spec = load_functions().get(function)
    lines = connection.makefile("rwb", buffering=0)

    def say(**told: float) -> None:
        lines.write(json.dumps(told).encode() + b"\n")

    async with FunctionEnvironment() as environment:
        inputs = await _inputs(environment, function, folder)
        chosen = spec.choice.of(validate(spec.inputs, inputs[0])) if spec.choice else None
        started_s = time.monotonic()
        await environment.model(spec, chosen)
        loaded_s = time.monotonic()
        if tier == "loaded":
            await asyncio.sleep(_SETTLES_S)
            say(done_s=loaded_s)
            lines.readline()
        begun_s = time.monotonic()
        await environment.run(function, inputs[0])
        done_s = time.monotonic()
        say(
            done_s=done_s,
            began_s=began_s,
            open_s=started_s - began_s,
            load_s=loaded_s - started_s,
            run_s=done_s - begun_s,
        )
        for run in itertools.count(1):
            if not lines.readline():
                break
            begun_s = time.monotonic()
            await environment.run(function, inputs[run % len(inputs)])
            say(done_s=time.monotonic(), run_s=time.monotonic() - begun_s)


async def _inputs(environment: Any, function: str, folder: Path) -> list[dict[str, Any]]:
    """The function's inputs, one a run, their tensors out of the folder."""
    import numpy as np

    async def tensor(name: str) -> dict[str, Any]:
        ref = await environment.tensors.put(np.load(folder / f"{name}.npy"))
        plain: dict[str, Any] = ref.model_dump()
        return plain

    found: list[dict[str, Any]] = json.loads((folder / f"{function}.json").read_text())
    for inputs in found:
        for place, name in inputs.pop("tensors", {}).items():
            *path, last = place.split(".")
            target: Any = inputs
            for step in path:
                target = target[int(step) if step.isdigit() else step]
            target[last] = await tensor(name)
    return found


def template(control: int, folder: Path) -> None:
    """Be a template of such processes."""
    from warmpool.preload import preload
    from warmpool.template import serve_template

    def become(request: Mapping[str, Any], connection: socket.socket, others: Sequence[int]) -> int:
        connection.recv(1)  # the parent's first word
        live(connection, request["function"], folder, request["tier"])
        return 0

    def imports() -> Mapping[str, str]:
        importlib.import_module("functions.environment")
        return preload()

    serve_template(socket.socket(fileno=control), imports, become)


if __name__ == "__main__":
    descriptor, rest = int(sys.argv[1]), sys.argv[2:]
    act: Callable[[], None]
    if rest[0] == "template":
        act = lambda: template(descriptor, Path(rest[1]))  # noqa: E731
    else:
        act = lambda: live(socket.socket(fileno=descriptor), rest[0], Path(rest[1]), rest[2])  # noqa: E731
    act()
