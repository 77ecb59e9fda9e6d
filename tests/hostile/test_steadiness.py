"""Hundreds of good and bad requests at once: every one is answered, and nothing is held afterwards."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from tests.hostile.stack import Held, Stack, held, settled
from tests.made.films import film
from tests.made.pictures import corners, huge_png, saved
from tests.made.sounds import tone, wav

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc"),
]

PNG = saved(corners(), "PNG")
MP4 = film([0, 200, 400], container="mp4")
TONE = wav(tone(440, 0.5, 16_000), 16_000)


def _url(kind: str, data: bytes) -> dict[str, object]:
    media_type = {"image": "image/png", "video": "video/mp4"}[kind]
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def _broken(number: int, data: bytes) -> bytes:
    """Another one for each number, so that no cache answers."""
    random = np.random.default_rng(number)
    broken = bytearray(data)
    for place in random.integers(8, len(broken), 12):
        broken[place] = random.integers(256)
    return bytes(broken)


MIX: list[tuple[Callable[[Stack, int], httpx.Response], set[int]]] = [
    (lambda stack, number: stack.chat([_url("image", _broken(number, PNG))]), {200, 400, 413, 415}),
    (lambda stack, number: stack.chat([_url("image", huge_png(8_000 + number, 8_001))]), {413}),
    (lambda stack, number: stack.chat([_url("video", _broken(number, MP4))]), {200, 400, 413, 415}),
    (lambda stack, number: stack.chat("", seed=number), {400}),
    (lambda stack, number: stack.chat("word " * 5_000 + str(number)), {400}),
    (lambda stack, number: stack.chat(f"What is {number}?"), {200}),
    (lambda stack, number: stack.transcribe(_broken(number, TONE)), {200, 400, 413, 415}),
    (lambda stack, number: stack.transcribe(wav(tone(200 + number, 1.0, 16_000), 16_000)), {200}),
    (lambda stack, number: stack.post("/v1/audio/speech", model="tts", input=f"hello {number}", voice="no"), {400}),
    (lambda stack, number: stack.post("/v1/embeddings", model="embed", input=[f"text {number}"]), {200}),
    (lambda stack, number: stack.post("/v1/embeddings", model="embed", input=[number]), {400}),
    (lambda stack, number: stack.post("/v1/pipelines/ocr", media=[{"url": f"http://127.0.0.2/{number}"}]), {400}),
    (lambda stack, number: stack.http.post("/v1/pipelines/embed", content=b"{" * number), {400}),
]  # fmt: skip


def storm(stack: Stack, numbers: range) -> None:
    """Every request of the mix for every number, twelve at a time."""

    def send(number: int) -> str | None:
        request, expected = MIX[number % len(MIX)]
        response = request(stack, number)
        # Too much at once may be told to come back; nothing may fail or run out of time.
        return None if response.status_code in expected | {429} else f"{number}: {response.text[:300]}"

    with ThreadPoolExecutor(12) as clients:
        problems = [problem for problem in clients.map(send, numbers) if problem is not None]
    assert not problems


def test_hundreds_of_good_and_bad_requests_leave_nothing_behind(stack: Stack) -> None:
    storm(stack, range(10 * len(MIX)))
    processes = stack.processes()
    before = {name: held(pid) for name, pid in processes.items()}
    storm(stack, range(10 * len(MIX), 34 * len(MIX)))
    assert stack.processes() == processes

    def grown() -> dict[str, tuple[Held, Held]]:
        after = {name: held(pid) for name, pid in processes.items()}
        return {name: (before[name], after[name]) for name in processes if _more(before[name], after[name])}

    assert settled(lambda: not grown()), grown()
    assert not [name for name in stack.tensors() if name.startswith(".")]  # unfinished writes


def _more(before: Held, after: Held) -> bool:
    # Caches fill and allocators round up; a leak of 300 requests would be far above.
    return (
        after.descriptors > before.descriptors + 12
        or after.threads > before.threads + 4
        or after.nbytes > before.nbytes * 1.25 + 64 * 1024 * 1024
    )
