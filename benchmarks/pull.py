"""A model file over several connections at once, beside one stream, from a server that is as far away as most are.

    python benchmarks/pull.py [--quick] [--json FILE]

The server, a process of its own, answers each request after 20 ms and sends at most so many bytes a second on each
connection, as object stores and hubs do. The pairs take turns; each reads into an empty folder and checks the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import httpx
import numpy as np
from _report import Measurement, report

from runtime.repository import TransferConfig
from runtime.repository.download import download
from tests.made.range_server import RangeServer

LATENCY_S = 0.02
RATE = 25e6
PARTS = (TransferConfig(), "4 ranges of 8 MiB at once"), (TransferConfig(connections=8), "8 ranges of 8 MiB at once")


def serve(nbytes: int, pipe: Connection) -> None:
    """Serve one file twice, with and without ranges, until the pipe closes."""
    data = np.random.default_rng(1).bytes(nbytes)
    with RangeServer() as ranged, RangeServer() as plain:
        plain.ranges = False
        for server in (ranged, plain):
            server.files["/weights"] = data
            server.latency_s, server.nbytes_per_s = LATENCY_S, RATE
        pipe.send((ranged.origin, plain.origin, hashlib.sha256(data).hexdigest()))
        pipe.recv()


def timed(origin: str, sha256: str, config: TransferConfig) -> float:
    """Seconds until the file is here, whole and checked."""
    with tempfile.TemporaryDirectory() as folder, httpx.Client() as client:
        started_s = time.perf_counter()
        download(f"{origin}/weights", Path(folder) / "weights", client=client, sha256=sha256, config=config)
        return time.perf_counter() - started_s


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true", help="Nothing else to compare with.")
    parser.add_argument("--json", dest="json_path")
    chosen = parser.parse_args()
    mebibytes, rounds = (64, 3) if chosen.quick else (256, 5)
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    server = spawn.Process(target=serve, args=(mebibytes << 20, theirs))
    server.start()
    ranged, plain, sha256 = ours.recv()
    results = []
    for config, name in PARTS:
        pairs = [(timed(ranged, sha256, config), timed(plain, sha256, config)) for _ in range(rounds)]
        ours_s, stream_s = (median(times) for times in zip(*pairs, strict=True))
        ratio = median(stream / parts for parts, stream in pairs)
        results.append(
            Measurement(
                name=f"{mebibytes} MiB in {name}", value=ours_s, unit="s", peer="one stream", peer_value=stream_s,
                ratio=ratio, goal="≥ 2× faster than one stream", ok=ratio >= 2,
            )
        )  # fmt: skip
    ours.send(None)
    server.join()
    report(results, chosen.json_path)


if __name__ == "__main__":
    main()
