"""A burst of requests against a stack without workers, beside one that has as many as it will start.

    python benchmarks/burst.py [--quick] [--json FILE]

Fifty sentences at once over HTTP, each a request of its own. Told are the times to the first and to the last answer,
how many workers there were at most, and how many requests had no answer. Rounds are interleaved; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
from _report import Measurement, report
from _stack import processes, stack

REQUESTS, MOST = 50, 2
SCALED = f"defaults: {{tier: template, max: {MOST}}}"


def workers(data: Path) -> int:
    """Worker processes that serve text.embed's group."""
    names = (Path(f"/proc/{pid}/comm") for pid in processes(data))
    return sum(path.exists() and path.read_text().startswith("omnibus-encode") for path in names)


async def burst(url: str, data: Path) -> tuple[list[float], int, int]:
    """Seconds to each answer, the most workers, and how many requests failed."""
    most, times, failed = 0, list[float](), 0
    started_s = time.monotonic()

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        nonlocal failed
        answer = await client.post("/v1/embeddings", json={"model": "embed", "input": f"Sentence number {number}."})
        failed += answer.status_code != 200
        times.append(time.monotonic() - started_s)

    limits = httpx.Limits(max_connections=REQUESTS)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        asked = asyncio.gather(*(ask(client, number) for number in range(REQUESTS)))
        while not asked.done():
            await asyncio.wait([asked], timeout=0.2)
            most = max(most, workers(data))
        await asked
    return times, most, failed


def rounds(scaled: bool, count: int) -> tuple[float, float, int, int]:
    """Median seconds to the first and to the last answer, the most workers, failures."""
    first, last, most, failed = list[float](), list[float](), 0, 0
    with tempfile.TemporaryDirectory() as name:
        data, deployment = Path(name) / "data", Path(name) / "warm.yaml"
        deployment.write_text(SCALED)
        fixed = ["--workers", f"media=1,encode={MOST},generate=1"]
        with stack(Path(name), *(["--scale-to-zero", "--warm", str(deployment)] if scaled else fixed)) as info:
            for _ in range(count):
                while scaled and workers(data):
                    time.sleep(0.2)
                times, peak, bad = asyncio.run(burst(info.gateway_url, data))
                first.append(min(times))
                last.append(max(times))
                most, failed = max(most, peak), failed + bad
    return median(first), median(last), most, failed


def measured(count: int) -> list[Measurement]:
    """Both stacks."""
    fixed, scaled = rounds(False, count), rounds(True, count)
    results = [
        Measurement(
            name=f"{REQUESTS} requests from zero: {what}",
            value=scaled[place] * 1e3,
            unit="ms",
            peer=f"{MOST} workers there",
            peer_value=fixed[place] * 1e3,
            ratio=scaled[place] / fixed[place],
        )
        for place, what in ((0, "first answer"), (1, "last answer"))
    ]
    return [
        *results,
        Measurement(name="the most workers", value=scaled[2], unit="", goal=f"<= {MOST}", ok=scaled[2] <= MOST),
        Measurement(name="requests without an answer", value=scaled[3], unit="", goal="0", ok=scaled[3] == 0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds: one round")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(measured(1 if arguments.quick else 5), arguments.json)


if __name__ == "__main__":
    main()
