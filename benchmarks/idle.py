"""What the embedded stack costs while nobody asks anything.

    python benchmarks/idle.py [--quick] [--json FILE]

Two stacks one after the other, each left alone: with the demo's workers loaded, and with no worker at all
(`--scale-to-zero`), once after its start and once after a request has come, was answered, and the worker has gone.
Processor time is that of all processes of the stack over the interval, in per cent of a core. Memory is what is the
stack's own and cannot be dropped (`Pss_Anon` and `Pss_Shmem` of `smaps_rollup`): each page once, however many of its
processes share it. Beside it, with the pages of programs and libraries that it has a part in (`Pss`), and what is
private to each process, which is less: the template shares nearly all with the worker that waits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import httpx
from _report import Measurement, report
from _stack import processes, stack


def cpu_s(pids: list[int]) -> float:
    """Processor seconds that they have taken so far."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    # Of the scheduler, in nanoseconds: `stat` counts ticks of a hundredth, in which little work is rounded to none.
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def memory_mb(pids: list[int], *kinds: str) -> float:
    """Megabytes of those kinds that they hold, by the names of smaps_rollup."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith(tuple(f"{kind}:" for kind in kinds)))
    return total * 1024 / 1e6


def quiet(name: str, folder: Path, seconds: float, goal: bool) -> list[Measurement]:
    """What it takes over an interval."""
    time.sleep(min(10.0, seconds / 2))  # what its start has left to do
    pids = processes(folder / "data")
    before, started_s = cpu_s(pids), time.monotonic()
    time.sleep(seconds)
    share = 100 * (cpu_s(pids) - before) / (time.monotonic() - started_s)
    memory = memory_mb(pids, "Pss_Anon", "Pss_Shmem")
    cpu = {"goal": "<= 1", "ok": share <= 1} if goal else {}
    room = {"goal": "<= 250", "ok": memory <= 250} if goal else {}
    what = f"{name}, {len(pids)} processes"
    return [
        Measurement(name=f"{what}: of a core", value=share, unit="%", **cpu),
        Measurement(name=f"{what}: memory", value=memory, unit="MB", **room),
        Measurement(name=f"{what}: with its part of files", value=memory_mb(pids, "Pss"), unit="MB"),
        Measurement(
            name=f"{what}: private to each",
            value=memory_mb(pids, "Private_Clean", "Private_Dirty"),
            unit="MB",
        ),
    ]


def measured(seconds: float) -> list[Measurement]:
    """Both stacks."""
    results = []
    with tempfile.TemporaryDirectory() as name, stack(Path(name)):
        results += quiet("workers loaded", Path(name), seconds, goal=False)
    with tempfile.TemporaryDirectory() as name:
        deployment = Path(name) / "warm.yaml"
        deployment.write_text("defaults: {tier: template}")
        with stack(Path(name), "--scale-to-zero", "--warm", str(deployment)) as info:
            results += quiet("no workers", Path(name), seconds, goal=True)
            before = len(processes(Path(name) / "data"))
            body = {"model": "embed", "input": "hello"}
            httpx.post(f"{info.gateway_url}/v1/embeddings", json=body, timeout=60).raise_for_status()
            while len(processes(Path(name) / "data")) > before:
                time.sleep(0.2)
            results += quiet("no workers any more", Path(name), seconds, goal=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds: short intervals")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(measured(5.0 if arguments.quick else 30.0), arguments.json)


if __name__ == "__main__":
    main()
