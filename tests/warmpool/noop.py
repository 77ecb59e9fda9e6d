"""A template whose workers do next to nothing, so that tests can have many of them.

    python -m tests.warmpool.noop CONTROL

A worker tells its log of itself, becomes as warm as it is told to, and ends when it is told to, in the way that the
name of its group says.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nats.nuid import NUID

from functions.watch import RunState
from warmpool.protocol import Failed, Promote, Reached, from_line, to_line
from warmpool.record import FlightRecord
from warmpool.template import serve_template


class Told(Exception):  # noqa: N818 - no error
    """To stop."""


def facts(threads: int) -> dict[str, Any]:
    """What a worker is, and what must not be what another one is."""
    return {
        "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "threads": threads,
        "files": sorted(os.readlink(path).split(":")[0] for path in Path("/proc/self/fd").iterdir() if path.exists()),
        "random": random.random(), "numpy": float(np.random.random()), "secret": secrets.token_hex(8),
        "uuid": uuid.uuid4().hex, "temporary": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]
        "nuid": NUID().next().decode(),
    }  # fmt: skip


def threads_of_a_session(asked: int) -> dict[str, Any]:
    """What a session that is opened here does, for a matrix of ones times one of twos."""
    from runtime.engines.onnx import OnnxSession

    before = len(os.listdir("/proc/self/task"))
    session = OnnxSession(Path(os.environ["NOOP_MODEL"]), threads=asked)
    (answer,) = session.run({"x": np.ones((1, 64), np.float32)})
    return {"answer": answer.tolist(), "threads": len(os.listdir("/proc/self/task")) - before}


def take_room() -> bool:
    """Whether no other worker has the room that there is for one; the kernel gives it back at the end."""
    room = os.open(os.environ["NOOP_ROOM"], os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def become(request: Mapping[str, Any], channel: socket.socket, descriptors: Sequence[int]) -> int:
    """The life of a worker."""
    record = FlightRecord(descriptors[0])
    group = str(request["group"])
    print(json.dumps(facts(len(os.listdir("/proc/self/task")))), flush=True)
    if group.startswith("session-"):
        print(json.dumps(threads_of_a_session(int(group.removeprefix("session-")))), flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if group == "deaf" else _stop)
    try:
        for line in channel.makefile("rb"):
            order = from_line(line)
            assert isinstance(order, Promote)
            record.beat(busy=0, served=0, unique_nbytes=0)
            if group == "broken":
                print("no model here", flush=True)
                channel.sendall(to_line(Failed("model_not_found", "no model here")))
                return 1
            if group == "large" and not take_room():
                print("no room", flush=True)
                channel.sendall(to_line(Failed("overloaded", "no room")))
                return 1
            if group == "stuck":
                record.begin("some-message", RunState.STUCK)
            channel.sendall(to_line(Reached(order.tier, {"noop": 0.001})))
            if group == "beats":
                threading.Thread(target=_beat, args=[record], daemon=True).start()
    except Told:
        print("stopped", flush=True)
    return 0


def _beat(record: FlightRecord) -> None:
    while True:
        record.beat(busy=0, served=0, unique_nbytes=0)
        time.sleep(0.05)


def _stop(number: int, frame: object) -> None:
    raise Told


def main() -> None:
    """Serve as a template."""
    if "NOOP_THREAD" in os.environ:
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
    serve_template(socket.socket(fileno=int(sys.argv[1])), dict, become)


def spawned(group: str, channel: int, record: int) -> None:
    """Be a worker that was not forked."""
    become({"group": group}, socket.socket(fileno=channel), [record])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        spawned(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
