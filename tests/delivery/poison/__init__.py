"""A function that harms its worker where a test wants it: loaded into real workers through OMNIBUS_FUNCTIONS.

Every run notes its request, attempt and process in `ran-run` of the folder `POISON_FOLDER`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from pathlib import Path
from typing import Any

from bus.contracts import Contract
from functions import Context, function

GROUP = "poison"


class Deed(Contract):
    """What to do."""

    do: str


class Done(Contract):
    """Who did it."""

    pid: int


_LEAKED: list[bytes] = []


def _deaf(seconds: int) -> None:
    ctypes.CDLL(None).sleep(seconds)


def _deaf_with_the_interpreter(seconds: int) -> None:
    ctypes.PyDLL(None).sleep(seconds)


async def _hold(context: Context[Any], folder: Path) -> None:
    while (folder / "hold").exists():
        context.check()
        await asyncio.sleep(0.005)


@function("poison.run", group=GROUP, slots=16, timeout_s=1.5, max_attempts=3)
async def run(context: Context[Any], inputs: Deed) -> Done:
    """Do it; what ends with `once` is done by the first worker only."""
    folder = Path(os.environ["POISON_FOLDER"])
    with open(folder / "ran-run", "a") as log:
        log.write(f"{context.event.request} {context.attempt} {os.getpid()}\n")
    deed, once = inputs.do.removesuffix(" once"), inputs.do.endswith(" once")
    if once and context.attempt > 1:
        deed = "answer"
    match deed:
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "hang":
            await context.run(_deaf, 600)
        case "hang all":
            _deaf_with_the_interpreter(600)
        case "swallow":
            bytearray(64 << 30)
        case "leak":
            _LEAKED.append(bytes(8 << 20) + b"touched")
        case "hold":
            await _hold(context, folder)
    return Done(pid=os.getpid())
