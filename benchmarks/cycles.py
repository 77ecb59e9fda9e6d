"""What a thousand workers leave behind: each is started, primed and sent home, and then everything is counted.

    python benchmarks/cycles.py [--quick] [--json FILE]

The workers are real ones, of an embedded stack: each connects to the bus, writes its lease and opens its stores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from _report import Measurement, report

from bus.contracts import Tier
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.leases import read_leases
from infra.local.stack import Stack
from infra.settings import load_settings

GROUP = "media"
AT_ONCE = 5


async def cycles(stack: Stack, count: int) -> float:
    """Start so many workers and send them home; the seconds that took."""
    started_s = time.monotonic()
    for _ in range(count // AT_ONCE):
        stack.pool.want(GROUP, {Tier.PRIMED: AT_ONCE})
        await stack.pool.reach(GROUP)
        stack.pool.want(GROUP, {})
        while stack.pool.members:
            await asyncio.sleep(0.002)
    return time.monotonic() - started_s


async def left(stack: Stack) -> dict[str, int]:
    """What is there that a leak would add to."""
    forker: Any = getattr(stack.pool.starter, "forker", None)
    pids = ["self"] if forker is None else ["self", forker.pid]
    config = NatsConfig(url=stack.nats.url, token=stack.nats.token)
    async with NatsBus(config) as bus:
        leases = len(await read_leases(await bus.bucket("workers")))
    return {
        "processes": sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")),
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "shared-memory files": len(os.listdir("/dev/shm")),
        "leases": leases,
    }


async def measure(count: int) -> list[Measurement]:
    """Count before and after."""
    with tempfile.TemporaryDirectory(prefix="omnibus-cycles-") as folder:
        settings = load_settings(data=Path(folder), port=0, workers=f"{GROUP}=0")
        async with Stack(settings) as stack:
            await cycles(stack, AT_ONCE)  # what is opened once
            before = await left(stack)
            seconds = await cycles(stack, count)
            after = await left(stack)
    found = [
        Measurement(
            name=f"{what} left by {count} workers", value=now - before[what], unit="", goal="0", ok=now <= before[what]
        )
        for what, now in after.items()
    ]
    return [*found, Measurement(name="workers primed and sent home", value=count / seconds, unit="1/s")]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fifty workers")
    parser.add_argument("--peers", action="store_true", help="there is none")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    report(uvloop.run(measure(50 if arguments.quick else 1_000)), arguments.json)


if __name__ == "__main__":
    main()
