"""A second process that serves the same model: what it adds to the memory of a host, and how fast a model opens.

    python benchmarks/memory.py [--quick] [--json FILE]

Two real processes load a model the way a worker does, run it, and stay. What the second one adds is the sum of both
processes' proportional set sizes with both there, less that of the first one alone; a process that has imported the
same code and opened no model says how much of it is the interpreter. The peer is the same without the cache of
optimised graphs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from _report import ROOT, Measurement, percentile, report

MODELS = {"all-minilm-l6-v2": "MiniLM", "whisper-base": "whisper-base", "smollm2-135m-instruct": "SmolLM2"}

CHILD = Path(__file__).parent / "_resident.py"


class Process:
    """A child that loads a model, runs it, and tells of itself when asked."""

    def __init__(self, model: str, cache: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), model, cache],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started = self._read()

    def tell(self) -> dict[str, Any]:
        """Its memory now, in MB."""
        _pipe(self._process.stdin).write("\n")
        _pipe(self._process.stdin).flush()
        return self._read()

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the child ended with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def process(model: str, cache: str) -> Iterator[Process]:
    """A child for as long as it is needed."""
    child = Process(model, cache)
    try:
        yield child
    finally:
        child.end()


def memory(model: str, cache: str) -> tuple[float, float, float, float]:
    """MB: the first process alone, what a second one adds, and both less what a process without a model takes."""
    with process("none", cache) as one, process("none", cache) as other:
        both = one.tell()["pss"] + other.tell()["pss"]
    with process("none", cache) as one:
        bare_first = one.tell()["pss"]
    bare_second = both - bare_first
    with process(model, cache) as one:
        first = one.tell()["pss"]
        with process(model, cache) as other:
            second = one.tell()["pss"] + other.tell()["pss"] - first
    return first, second, first - bare_first, second - bare_second


def opened_ms(model: str, cache: str, rounds: int) -> float:
    """Median time to open a model's graphs in a fresh process."""
    times = []
    for _ in range(rounds):
        with process(model, cache) as child:
            times.append(child.started["open_ms"])
    return percentile(times, 0.5)


def measure(name: str, model: str, folder: str, rounds: int) -> list[Measurement]:
    """The rows of one model."""
    opened_ms(model, folder, 1)  # saves the graphs
    cached, plain = opened_ms(model, folder, rounds), opened_ms(model, "none", rounds)
    first, second, own, added = memory(model, folder)
    plain_first, plain_second, *_ = memory(model, "none")
    return [
        Measurement(
            name=f"{name}: open", value=cached, unit="ms", peer="without the cache", peer_value=plain,
            ratio=cached / plain,
        ),
        Measurement(
            name=f"{name}: a second process adds", value=second, unit="MB", peer="the first one", peer_value=first,
            ratio=second / first,
        ),
        Measurement(
            name=f"{name}: the same for its model alone", value=added, unit="MB", peer="the first one's model",
            peer_value=own, ratio=added / own, goal="<= 0.15", ok=added / own <= 0.15,
        ),
        Measurement(
            name=f"{name}: a second process adds, no cache", value=plain_second, unit="MB", peer="the first one",
            peer_value=plain_first, ratio=plain_second / plain_first,
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="the peer is the same code without the cache")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnibus-graphs-") as folder:
        results = [
            row for model, name in MODELS.items() for row in measure(name, model, folder, 3 if arguments.quick else 7)
        ]
    report(results, arguments.json)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the child was started without pipes")
    return pipe


if __name__ == "__main__":
    main()
