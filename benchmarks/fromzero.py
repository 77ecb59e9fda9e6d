"""The whole way of a request that finds no worker: over HTTP, through the bus, with the models that it needs.

    python benchmarks/fromzero.py [--quick] [--json FILE]

A sentence is embedded, eight tokens are written, a spoken question is transcribed, a short sentence is said, a picture
is asked about. Each is asked of a stack without workers, which takes them from its template; of one that starts each
worker anew (`OMNIBUS_FORK=false`); and of one that has them. No request repeats another one. Stacks run one after the
other; medians.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from _question import spoken_question
from _report import Measurement, report
from _stack import processes, stack
from PIL import Image

from runtime.repository import Repository

SCALED = "defaults: {tier: template}"
GROUPS = ("media", "encode", "speech", "generate", "default")

Ask = Callable[[httpx.Client, int], httpx.Response]


def photo(number: int) -> str:
    """The demo's picture as a data URL, no two alike."""
    repository = Repository()
    picture = Image.open(repository.file(repository.resolve("cat-photo"), "chelsea.png")).convert("RGB")
    picture.putpixel((0, 0), (number % 256, number // 256, 0))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def chat(client: httpx.Client, content: Any) -> httpx.Response:
    """Eight tokens of an answer."""
    return client.post(
        "/v1/chat/completions",
        json={"model": "chat", "messages": [{"role": "user", "content": content}], "max_tokens": 8},
    )


def heard(client: httpx.Client, number: int) -> httpx.Response:
    """The spoken question, transcribed."""
    # A trailing byte makes it another file and no other sound.
    sound = spoken_question() + bytes(number + 1)
    return client.post("/v1/audio/transcriptions", data={"model": "transcribe"}, files={"file": ("q.wav", sound)})


def seen(client: httpx.Client, number: int) -> httpx.Response:
    """An answer about a picture."""
    question = {"type": "text", "text": "What is in this picture?"}
    return chat(client, [question, {"type": "image_url", "image_url": {"url": photo(number)}}])


REQUESTS: dict[str, Ask] = {
    "a sentence embedded": lambda client, number: client.post(
        "/v1/embeddings", json={"model": "embed", "input": f"Sentence number {number}."}
    ),
    "eight tokens written": lambda client, number: chat(client, f"{number}: what is the capital of Japan?"),
    "a spoken question transcribed": heard,
    "a short sentence said": lambda client, number: client.post(
        "/v1/audio/speech", json={"model": "speak", "voice": "af_heart", "input": f"Hello there, {number}."}
    ),
    "a picture asked about": seen,
}


def workers(data: Path) -> int:
    """Worker processes that serve a group."""
    names = (Path(f"/proc/{pid}/comm") for pid in processes(data))
    return sum(path.exists() and path.read_text().strip().removeprefix("omnibus-") in GROUPS for path in names)


def asked(count: int, *arguments: str, fork: bool = True, cold: bool = True) -> dict[str, float]:
    """Median milliseconds of each request, asked of a stack of its own."""
    times: dict[str, list[float]] = {name: [] for name in REQUESTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "warm.yaml").write_text(SCALED)
        if cold:
            arguments = ("--scale-to-zero", "--warm", str(folder / "warm.yaml"))
        with (
            stack(folder, *arguments, OMNIBUS_FORK=str(fork).lower()) as info,
            httpx.Client(base_url=info.gateway_url, timeout=120) as client,
        ):
            for turn in range(count + 1):
                for what, ask in REQUESTS.items():
                    while cold and workers(folder / "data"):
                        time.sleep(0.1)
                    time.sleep(1.5 if cold else 0.0)  # until a fork waits for work, as after any quiet second
                    started_s = time.monotonic()
                    answer = ask(client, turn)
                    seconds = time.monotonic() - started_s
                    answer.raise_for_status()
                    if turn:  # the first one fills the page cache
                        times[what].append(seconds)
    return {what: median(seconds) * 1e3 for what, seconds in times.items()}


def measured(count: int) -> list[Measurement]:
    """All stacks."""
    there, anew, forked = asked(count, cold=False), asked(count, fork=False), asked(count)
    results = []
    for what in REQUESTS:
        for peer, values in (("workers anew", anew), ("workers there", there)):
            ratio = values[what] / forked[what]
            results.append(
                Measurement(name=what, value=forked[what], unit="ms", peer=peer, peer_value=values[what], ratio=ratio)
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(measured(1 if arguments.quick else 5), arguments.json)


if __name__ == "__main__":
    main()
