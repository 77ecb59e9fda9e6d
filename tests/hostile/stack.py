"""A running stack with the real models, and what its processes hold."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bus.contracts import Lease
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.leases import read_leases
from infra.local.folder import find_stack


@dataclass(frozen=True)
class Held:
    """What a process holds.

    Attributes:
        descriptors: Open files and sockets.
        threads: Of all kinds.
        nbytes: Memory that only this process has.
    """

    descriptors: int
    threads: int
    nbytes: int


@dataclass
class Stack:
    """`omnibus up`, seen by its clients and by its operator."""

    data: Path
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        found = find_stack(self.data)
        assert found is not None
        self.info = found
        # Any answer to bad input is quick; a slow one is a fault.
        self.http = httpx.Client(base_url=found.gateway_url, timeout=40)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        """POST with the fields as JSON."""
        return self.http.post(path, json=fields)

    def chat(self, content: Any, **fields: Any) -> httpx.Response:
        """One turn, answered with as few words as possible."""
        message = {"role": "user", "content": content}
        return self.post("/v1/chat/completions", **{"model": "chat", "messages": [message], "max_tokens": 1, **fields})

    def transcribe(self, data: bytes, name: str = "sound", media_type: str = "", **fields: str) -> httpx.Response:
        """A file as a form sends it."""
        files = {"file": (name, data, media_type or "application/octet-stream")}
        return self.http.post("/v1/audio/transcriptions", files=files, data={"model": "asr", **fields})

    def workers(self) -> dict[str, int]:
        """Process ids by worker, from the leases."""
        return {lease.worker: lease.pid for lease in asyncio.run(self._leases())}

    def processes(self) -> dict[str, int]:
        """The workers and the gateway."""
        mine = f"OMNIBUS_DATA={self.data}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if path.joinpath("cmdline").read_bytes().endswith(b"\0gateway\0") and mine in (
                    path / "environ"
                ).read_bytes().split(b"\0"):
                    return {**self.workers(), "gateway": int(path.name)}
            except OSError:
                continue
        raise AssertionError("no gateway")

    def tensors(self) -> list[str]:
        """Names in the stack's shared memory."""
        return os.listdir(self.info.tensors)

    async def _leases(self) -> list[Lease]:
        config = NatsConfig(url=self.info.nats_url, token=self.info.nats_token, name="test")
        async with NatsBus(config) as bus:
            return await read_leases(await bus.bucket("workers"))


def held(pid: int) -> Held:
    """What a process holds now."""
    process = Path(f"/proc/{pid}")
    private = [
        line.split() for line in (process / "smaps_rollup").read_text().splitlines() if line.startswith("Private_")
    ]
    return Held(
        len(os.listdir(process / "fd")), len(os.listdir(process / "task")), sum(int(one[1]) for one in private) * 1024
    )


def settled(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Whether something becomes true soon after the last request."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def refused(response: httpx.Response, status: int, code: str, words: str = "") -> None:
    """The error is OpenAI's shape, typed, traceable and to the point."""
    assert response.status_code == status, response.text[:500]
    error = response.json()["error"]
    assert error["code"] == code, error
    assert words in error["message"], error
    assert len(error["message"]) < 2_100
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert error["request_id"] == response.headers["x-request-id"]
    assert {"param", "retryable", "stage"} <= error.keys()


def answered(response: httpx.Response) -> dict[str, Any]:
    """The body of an answer."""
    assert response.status_code == 200, response.text[:500]
    body: dict[str, Any] = response.json()
    return body
