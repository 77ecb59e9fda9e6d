"""Three no-op stages behind HTTP: latency of one client, requests a second of 32.

    python benchmarks/pipeline.py [--quick] [--peers] [--json FILE]

The baseline in the same run is a bare prototype (FastAPI, nats-py, three durable hops; no contracts, traces,
lanes or retries). `--peers` adds the same chain on Ray Serve, installed into an environment of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from _load import Load, load
from _peers import own_environment, peer_python
from _report import ROOT, Measurement, percentile, report

from infra.local.nats_server import NatsServer, free_port
from infra.local.stack import Stack
from infra.settings import load_settings

SIZES = {"1 KiB": 1024, "150 KB": 150_000}


@asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """The embedded stack with one worker of the three stages."""
    os.environ |= {"OMNIBUS_FUNCTIONS": "benchmarks.noop", "OMNIBUS_PIPELINES": str(ROOT / "benchmarks" / "noop")}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = load_settings(data=str(folder / "ours"), port=free_port(), workers="noop=1", log_level="WARNING")
    async with Stack(settings) as stack:
        await stack.wait_until_ready()
        yield settings.port, "/v1/pipelines/noop"


@asynccontextmanager
async def prototype(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """The bare prototype in the same shape: server, worker and gateway processes."""
    (folder / "prototype").mkdir()
    port = free_port()
    async with NatsServer(folder / "prototype", folder) as server:
        command = [sys.executable, "-m", "benchmarks.peers.prototype"]
        processes = [
            subprocess.Popen([*command, "worker", server.url, server.token], cwd=ROOT),
            subprocess.Popen(
                [*command, "gateway", server.url, server.token, str(port)], cwd=ROOT, stderr=subprocess.DEVNULL
            ),
        ]
        try:
            await _answers(port, "/run")
            yield port, "/run"
        finally:
            for process in processes:
                process.kill()
                process.wait()


@asynccontextmanager
async def ray_serve(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """The chain on Ray Serve, from an environment of its own."""
    python, own = peer_python("ray", ["ray[serve]"]), own_environment()
    port = free_port()
    script = str(ROOT / "benchmarks" / "peers" / "ray_chain.py")
    process = subprocess.Popen(
        [str(python), script, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=own,
    )
    try:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        await _answers(port, "/run")
        yield port, "/run"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        subprocess.run([str(python.parent / "ray"), "stop", "--force"], capture_output=True, check=False)


async def _answers(port: int, path: str) -> None:
    for _ in range(600):
        try:
            await load(port, path, b"x", clients=1, seconds=0.01, content_type="application/octet-stream")
        except (OSError, RuntimeError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.1)
        else:
            return
    raise RuntimeError(f"nothing answers on port {port}")


async def _turn(port: int, path: str, nbytes: int, clients: int, seconds: float) -> Load:
    # Text for ours, so that the small body rides in the event as it would in a client's JSON.
    body = b"x" * nbytes
    return await load(port, path, body, clients=clients, seconds=seconds, content_type="application/octet-stream")


async def _measure(quick: bool, peers: bool) -> list[Measurement]:
    seconds, turns = (1.5, 2) if quick else (5.0, 4)
    results: list[Measurement] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ours(folder) as (port, path), prototype(folder) as (bare_port, bare_path):
            for size, nbytes in SIZES.items():
                pairs: dict[int, tuple[list[Load], list[Load]]] = {1: ([], []), 32: ([], [])}
                for _ in range(turns):
                    for clients, (own, bare) in pairs.items():
                        own.append(await _turn(port, path, nbytes, clients, seconds))
                        bare.append(await _turn(bare_port, bare_path, nbytes, clients, seconds))
                results += _compare(size, "bare prototype", pairs, goal=size == "1 KiB")
            if peers:
                results += await _beside_ray(port, path, folder, seconds, turns)
    return results


async def _beside_ray(port: int, path: str, folder: Path, seconds: float, turns: int) -> list[Measurement]:
    pairs: dict[int, tuple[list[Load], list[Load]]] = {1: ([], []), 32: ([], [])}
    async with ray_serve(folder) as (ray_port, ray_path):
        for _ in range(turns):
            for clients, (own, ray) in pairs.items():
                own.append(await _turn(port, path, 1024, clients, seconds))
                ray.append(await _turn(ray_port, ray_path, 1024, clients, seconds))
    return _compare("1 KiB", "Ray Serve", pairs, goal=False)


def _compare(size: str, peer: str, pairs: dict[int, tuple[list[Load], list[Load]]], *, goal: bool) -> list[Measurement]:
    latency, peer_latency = (_p50_ms(loads) for loads in pairs[1])
    rate, peer_rate = (percentile([one.rate for one in loads], 0.5) for loads in pairs[32])
    return [
        Measurement(
            name=f"three stages over HTTP, {size}, 1 client, p50",
            value=latency,
            unit="ms",
            peer=peer,
            peer_value=peer_latency,
            ratio=latency / peer_latency,
        ),
        Measurement(
            name=f"three stages over HTTP, {size}, 32 clients",
            value=rate,
            unit="req/s",
            peer=peer,
            peer_value=peer_rate,
            ratio=rate / peer_rate,
            goal=">= 0.5x prototype" if goal else None,
            ok=rate / peer_rate >= 0.5 if goal else None,
        ),
    ]


def _p50_ms(loads: Sequence[Load]) -> float:
    return percentile([one for load in loads for one in load.times_s], 0.5) * 1e3


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter turns")
    parser.add_argument("--peers", action="store_true", help="Ray Serve, too")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    started = time.perf_counter()
    results = uvloop.run(_measure(arguments.quick, arguments.peers))
    report(results, arguments.json)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
