"""Does it stay the same? Thousands of good and bad requests of every kind, and the memory of every process meanwhile.

    python benchmarks/soak.py [--quick] [--requests N] [--curve FILE.svg] [--json FILE]

Starts the embedded stack with its models in a folder of its own, sends the mix twelve at a time, and reads after each
hundredth of it what every process has for itself alone (USS). A leak is a slope: the last quarter of the run is
compared with the second.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import tempfile
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import httpx
import numpy as np
import uvloop
from _report import Measurement, report
from _stack import processes
from PIL import Image

from infra.local.nats_server import free_port
from infra.local.stack import Stack
from infra.settings import load_settings

CLIENTS = 12
GOAL = 1.05

Send = Callable[[httpx.AsyncClient, int], Awaitable[httpx.Response]]


def sound(number: int, seconds: float, loudness: float = 0.3) -> bytes:
    """A tone of its own for each number, as a WAV file."""
    times = np.arange(int(16_000 * seconds)) / 16_000
    samples = (np.sin(2 * np.pi * (200 + number % 2000) * times) * loudness * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def picture(number: int) -> bytes:
    """A picture of its own for each number, as a PNG file."""
    random = np.random.default_rng(number)
    file = io.BytesIO()
    blocks = random.integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(blocks).resize((160, 120), Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


def chat(content: object, **fields: object) -> Send:
    """One turn; `{n}` in a text becomes the request's number."""

    async def send(client: httpx.AsyncClient, number: int) -> httpx.Response:
        said = content(number) if callable(content) else content
        body = {"model": "chat", "messages": [{"role": "user", "content": said}], "max_tokens": 4, **fields}
        # Escaped, not encoded: half a character cannot be encoded, but it can be sent.
        text = json.dumps(body)
        return await client.post("/v1/chat/completions", content=text, headers={"content-type": "application/json"})

    return send


def shown(number: int, data: bytes | None = None) -> list[dict[str, object]]:
    """A question about a picture."""
    url = "data:image/png;base64," + base64.b64encode(data or picture(number)).decode()
    return [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]


def heard(make: Callable[[int], bytes]) -> Send:
    """A sound to be written down."""

    async def send(client: httpx.AsyncClient, number: int) -> httpx.Response:
        files = {"file": ("sound.wav", make(number), "audio/wav")}
        return await client.post("/v1/audio/transcriptions", files=files, data={"model": "asr"})

    return send


def posted(path: str, body: Callable[[int], object]) -> Send:
    """JSON to a path."""

    async def send(client: httpx.AsyncClient, number: int) -> httpx.Response:
        return await client.post(path, json=body(number))

    return send


# What is sent, how often, and the statuses that are right; 429 is right for all.
MIX: list[tuple[str, int, Send, set[int]]] = [
    ("a short chat", 3, chat(lambda n: f"Say {n}."), {200}),
    ("a sampled chat", 2, chat(lambda n: f"Tell me of {n}.", temperature=1.0, top_p=0.9), {200}),
    ("a chat about a picture", 2, chat(shown), {200}),
    ("a broken picture", 1, chat(lambda n: shown(n, picture(n)[:-60])), {400, 415}),
    ("a prompt beyond the context", 1, chat(lambda n: f"word {n} " * 6000), {400}),
    ("no tokens wanted", 1, chat("Hi.", max_tokens=0), {400, 422}),
    ("too many tokens wanted, then stopped", 1, chat("Say a.", max_tokens=100_000, stop=["a", "e", " "]), {200, 400}),
    ("a stop string that is no text", 1, chat("Hi.", stop=["\ud800"]), {400, 422}),
    ("a penalty that is no number", 1, posted("/v1/chat/completions", lambda n: {"presence_penalty": "x"}), {400, 422}),
    ("a second of tone", 2, heard(lambda n: sound(n, 1.0)), {200}),
    ("a second of zeros", 1, heard(lambda n: sound(n, 1.0 + n % 100 / 100, 0.0)), {200}),
    ("a broken sound", 1, heard(lambda n: sound(n, 0.2)[: 30 + n % 14]), {400, 415}),
    ("sentences to embed", 4, posted("/v1/embeddings", lambda n: {"model": "embed", "input": [f"a {n}"] * 4}), {200}),
    ("nothing to embed", 1, posted("/v1/embeddings", lambda n: {"model": "embed", "input": []}), {400, 422}),
    ("a voice that is not there", 1, posted(
        "/v1/audio/speech", lambda n: {"model": "tts", "input": f"no {n}", "voice": "nobody"}), {400}),
    ("an unknown model", 1, posted("/v1/chat/completions", lambda n: {"model": f"m{n}", "messages": []}), {400, 404}),
]  # fmt: skip
TURNS = [(name, send, right) for name, often, send, right in MIX for _ in range(often)]


def unique_nbytes(pid: int) -> int:
    """Memory that only this process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def named(data: Path) -> dict[str, int]:
    """Process ids of the stack's own processes, by what they do."""
    found = {}
    for pid in processes(data):
        folder = Path(f"/proc/{pid}")
        try:
            # Forked workers have their template's command line, and names of their own.
            name = folder.joinpath("comm").read_text().strip()
            words = folder.joinpath("cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        command = b" ".join(words[-4:]).decode(errors="replace").strip()
        found[name if name.startswith("omnibus-") else command] = pid
    return found


async def send_all(url: str, start: int, count: int) -> list[str]:
    """Some requests, as many at a time as there are clients; what was wrong, one sentence each."""
    numbers = iter(range(start, start + count))
    problems: list[str] = []

    async def client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as http:
            for number in numbers:
                name, send, right = TURNS[number % len(TURNS)]
                response = await send(http, number)
                if response.status_code not in right | {429}:
                    problems.append(f"{name} ({number}): {response.status_code} {response.text[:200]}")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return problems


async def run(requests: int) -> tuple[dict[str, list[float]], list[str]]:
    """The curve of each process, in MiB, and what was answered wrongly."""
    curves: dict[str, list[float]] = {}
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data=folder, port=free_port(), log_level="ERROR")
        url = f"http://{settings.host}:{settings.port}"
        async with Stack(settings):
            size = max(len(TURNS), requests // 100)
            for start in range(0, requests, size):
                problems += await send_all(url, start, min(size, requests - start))
                for name, pid in named(Path(folder)).items():
                    curves.setdefault(name, []).append(unique_nbytes(pid) / 2**20)
                print(f"\r{min(start + size, requests)} of {requests} requests", end="", flush=True)
    print()
    return curves, problems


def growth(curve: list[float]) -> tuple[float, float]:
    """Medians of the second and of the last quarter."""
    quarter = max(1, len(curve) // 4)
    return median(curve[quarter : 2 * quarter] or curve), median(curve[-quarter:])


def draw(curves: dict[str, list[float]], requests: int) -> str:
    """The curves as an SVG picture."""
    width, height, left = 760, 360, 60
    top = max(max(curve) for curve in curves.values()) * 1.1
    colours = ["#1b6ca8", "#d1495b", "#3c896d", "#edae49", "#66506f", "#00798c"]
    parts = [f'<rect width="{width}" height="{height}" fill="white"/>']
    for share in range(5):
        y = height - 40 - (height - 60) * share / 4
        parts.append(f'<path d="M{left} {y:.0f}H{width - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{top * share / 4:.0f}</text>')
    for place, (name, curve) in enumerate(curves.items()):
        colour = colours[place % len(colours)]
        points = [
            (left + (width - left - 20) * (at + 1) / len(curve), height - 40 - (height - 60) * value / top)
            for at, value in enumerate(curve)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{left + 10}" y="{24 + 14 * place}" fill="{colour}">{name}</text>')
    parts.append(
        f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">{requests} requests; MiB of its own</text>'
    )
    place = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    return f'<svg {place} font-family="sans-serif" font-size="11">{"".join(parts)}</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="240 requests: whether it runs, not whether it leaks")
    parser.add_argument("--peers", action="store_true", help="has none; the run is its own baseline")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--curve", help="draw the memory of each process there, as SVG")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    requests = 240 if arguments.quick else arguments.requests
    curves, problems = uvloop.run(run(requests))
    results = []
    for name, curve in sorted(curves.items()):
        early, late = growth(curve)
        results.append(
            Measurement(
                name=f"memory, {name}"[:52], value=late, unit="MiB", peer="second quarter", peer_value=early,
                ratio=late / early, goal=f"<= {GOAL}", ok=late / early <= GOAL,
            )
        )  # fmt: skip
    wrong = Measurement(name="requests answered wrongly", value=len(problems), unit="", goal="0", ok=not problems)
    report([*results, wrong], arguments.json)
    print("\n".join(problems[:10]))
    if arguments.curve:
        Path(arguments.curve).write_text(draw(curves, requests))
    print(
        json.dumps(
            {name: [round(value) for value in curve[:: max(1, len(curve) // 12)]] for name, curve in curves.items()}
        )
    )


if __name__ == "__main__":
    main()
