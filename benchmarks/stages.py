"""Each stage alone on the demo's models and media: what a request's time is made of.

    python benchmarks/stages.py [--quick] [--json FILE]

Runs in one process without a bus (`FunctionEnvironment`), so that only the stage itself is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import uvloop
from _report import Measurement, percentile, report

from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from functions.registry import registry
from runtime.repository import Repository

SENTENCE = "The quick brown fox jumps over the lazy dog, and then it takes a nap in the warm sun."
QUESTION = "Write a short story about a fox who learns to swim."


async def _timed(environment: FunctionEnvironment, name: str, inputs: dict[str, Any], rounds: int) -> tuple[Any, float]:
    outputs = await environment.run(name, inputs)  # the first run warms caches and arenas up
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        outputs = await environment.run(name, inputs)
        times.append(time.perf_counter() - started)
    return outputs, percentile(times, 0.5)


async def _measure(rounds: int) -> list[Measurement]:
    registry.load("functions.stages")
    repository = Repository()
    photo = repository.file(repository.resolve("cat-photo"), "chelsea.png").read_bytes()
    results = []
    async with FunctionEnvironment() as environment:
        item = {"part": 0, "ref": (await save_media(environment.store, photo, "image/png")).model_dump()}
        pixels, seconds = await _timed(environment, "image.preprocess", {"images": [item]}, rounds)
        results.append(Measurement(name="image.preprocess, 451 x 300 PNG", value=seconds * 1e3, unit="ms"))
        _, seconds = await _timed(environment, "image.encode", {"images": pixels["images"]}, rounds)
        results.append(Measurement(name="image.encode, one picture", value=seconds * 1e3, unit="ms"))
        said, seconds = await _timed(environment, "speak", {"text": SENTENCE}, min(rounds, 3))
        speech = said["speech"]
        results.append(
            Measurement(name="speak, time / length of the speech", value=seconds / speech["seconds"], unit="x")
        )
        clip = {"part": 0, "ref": speech["audio"]}
        waves, seconds = await _timed(environment, "audio.preprocess", {"clips": [clip]}, rounds)
        results.append(Measurement(name="audio.preprocess, the same speech", value=seconds * 1e3, unit="ms"))
        heard, seconds = await _timed(environment, "audio.transcribe", {"clips": waves["clips"]}, min(rounds, 5))
        results.append(Measurement(name="audio.transcribe, time / length", value=seconds / speech["seconds"], unit="x"))
        print(f"heard: {heard['transcripts'][0]['text']}")
        _, seconds = await _timed(environment, "text.embed", {"texts": [SENTENCE] * 32}, rounds)
        results.append(Measurement(name="text.embed, 32 sentences", value=seconds * 1e3, unit="ms"))
        results += await _generation(environment, rounds)
    return results


async def _generation(environment: FunctionEnvironment, rounds: int) -> list[Measurement]:
    messages = [{"role": "user", "content": [{"text": QUESTION}]}]
    fused, seconds = await _timed(environment, "fuse", {"messages": messages}, rounds)
    results = [Measurement(name="fuse, a short question", value=seconds * 1e3, unit="ms")]

    async def tokens_per_s(streams: int) -> float:
        inputs = {"prompt": fused["prompt"], "sampling": {"max_tokens": 96}}
        started = time.perf_counter()
        outputs = await asyncio.gather(*(environment.run("generate", inputs) for _ in range(streams)))
        made = sum(one["usage"]["completion_tokens"] for one in outputs)
        return made / (time.perf_counter() - started)

    await tokens_per_s(1)
    one = percentile([await tokens_per_s(1) for _ in range(min(rounds, 3))], 0.5)
    eight = percentile([await tokens_per_s(8) for _ in range(min(rounds, 3))], 0.5)
    results.append(Measurement(name="generate, one stream", value=one, unit="tok/s"))
    results.append(
        Measurement(
            name="generate, eight streams together",
            value=eight,
            unit="tok/s",
            peer="one stream",
            peer_value=one,
            ratio=eight / one,
        )
    )
    return results


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="none here yet")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    report(uvloop.run(_measure(3 if arguments.quick else 10)), arguments.json)


if __name__ == "__main__":
    main()
