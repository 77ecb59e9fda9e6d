from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import OpenAI


@contextmanager
def served(**config: Any) -> Iterator[str]:
    """A gateway process with the parrot's functions; its URL."""
    command = [sys.executable, "-m", "tests.functions.gateway.parrot.serve", json.dumps(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the gateway did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def gateway_url() -> Iterator[str]:
    with served(max_body_nbytes=2_000_000) as url:
        yield url


@pytest.fixture(scope="session")
def guarded_url() -> Iterator[str]:
    """A gateway with a key and room for two requests of 64 KiB in all."""
    with served(api_key="sesame", max_requests=2, max_body_nbytes=50_000, max_buffered_nbytes=64_000) as url:
        yield url


@pytest.fixture
def http(gateway_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway_url, timeout=30) as client:
        yield client


@pytest.fixture
def guarded(guarded_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded_url, timeout=30, headers={"authorization": "Bearer sesame"}) as client:
        yield client


@pytest.fixture
def openai(gateway_url: str) -> Iterator[OpenAI]:
    """The official client, unchanged."""
    with OpenAI(base_url=f"{gateway_url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        yield client
