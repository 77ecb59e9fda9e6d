"""How long a function that is not there takes to its first result, by what is there of it.

    python benchmarks/coldstart.py [--quick] [--peers] [--json FILE] [--plot FILE]

`plain spawn`: a fresh Python imports, loads and runs. `template`: a fork of a process that has imported everything
loads and runs. `loaded`: a process that holds the model runs for the first time. `hot`: it runs again. Beside them load
and first run alone, in a process that has imported everything. Each function runs on the demo's model: a sentence, a
picture, a spoken question, eight tokens of an answer, a short sentence said; no two prompts of a process begin alike,
so that none is answered out of its cache. `--peers` adds a fresh process that imports torch and transformers, and one
that embeds the sentence with them. Rounds are interleaved; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _peers import own_environment, peer_python
from _plot import bars
from _question import spoken_question
from _report import ROOT, Measurement, report

from bus.contracts import MediaLimits
from functions.environment import FunctionEnvironment
from functions.registry import load_functions
from runtime.media.audio import decode
from runtime.repository import Repository
from runtime.vision.square import encoder_pixels
from warmpool.forker import Forker

FUNCTIONS = {
    "text encoder": "text.embed",
    "image encoder": "image.encode",
    "speech to text": "audio.transcribe",
    "language model": "generate",
    "text to speech": "speak",
}
SENTENCE = "The quick brown fox jumps over the lazy dog."
TIERS = ("plain spawn", "template", "alone", "loaded", "hot")
COLD = str(ROOT / "benchmarks" / "_cold.py")


async def write_inputs(folder: Path) -> None:
    """What each function is run on."""
    from PIL import Image

    repository = Repository()
    photo = Image.open(repository.file(repository.resolve("cat-photo"), "chelsea.png")).convert("RGB")
    np.save(folder / "pixels.npy", encoder_pixels(photo))
    clip = decode(spoken_question(), MediaLimits())
    np.save(folder / "samples.npy", clip)
    image = {"part": 0, "width": photo.width, "height": photo.height, "source": "photo"}
    seconds = len(clip) / 16_000
    voice = [{"start_s": 0.0, "end_s": seconds}]
    transcribed = {
        "clips": [{"part": 0, "seconds": seconds, "source": "clip", "voice": voice}],
        "tensors": {"clips.0.samples": "samples"},
    }
    inputs: dict[str, list[dict[str, Any]]] = {
        "text.embed": [{"texts": [SENTENCE]}],
        "image.encode": [{"images": [image], "tensors": {"images.0.pixels": "pixels"}}],
        "audio.transcribe": [transcribed],
        "generate": await _prompts(folder),
        "speak": [{"text": "Hello there."}],
    }
    for name, found in inputs.items():
        (folder / f"{name}.json").write_text(json.dumps(found))


async def _prompts(folder: Path) -> list[dict[str, Any]]:
    """Inputs of `generate`, one a run."""
    load_functions()
    found = []
    async with FunctionEnvironment() as environment:
        for system in ("Answer at once.", "Be brief.", "You know the world.", "Say it kindly."):
            messages = [
                {"role": "system", "content": [{"text": system}]},
                {"role": "user", "content": [{"text": "What is the capital of Japan?"}]},
            ]
            prompt = (await environment.run("fuse", {"messages": messages}))["prompt"]
            tensors = {}
            for name in ("ids", "positions"):
                tensors[f"prompt.{name}"] = file = f"{name}-{len(found)}"
                np.save(folder / f"{file}.npy", await environment.tensors.get(_ref(prompt.pop(name))))
            found.append({"prompt": prompt, "sampling": {"max_tokens": 8}, "tensors": tensors})
    return found


def _ref(plain: dict[str, Any]) -> Any:
    from bus.contracts import TensorRef

    return TensorRef.model_validate(plain)


class Talk:
    """The parent's end of a child's channel."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rwb", buffering=0)

    async def hear(self) -> dict[str, float]:
        """The next line."""
        line = await asyncio.to_thread(self._lines.readline)
        if not line:
            raise RuntimeError("the child ended before it had a result")
        told: dict[str, float] = json.loads(line)
        return told

    async def again(self) -> tuple[float, dict[str, float]]:
        """Have it run, and when that was asked for."""
        asked_s = time.monotonic()
        self._lines.write(b"\n")
        return asked_s, await self.hear()

    def close(self) -> None:
        self._lines.close()


@contextmanager
def spawned(function: str, folder: Path, tier: str) -> Iterator[tuple[float, Talk]]:
    """A fresh process, and when it was asked for."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, COLD, str(theirs.fileno()), function, str(folder), tier]
    asked_s = time.monotonic()
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    talk = Talk(ours)
    try:
        yield asked_s, talk
    finally:
        talk.close()
        ours.close()
        process.wait()


async def round_of(forker: Forker, function: str, folder: Path) -> dict[str, float]:
    """Milliseconds by tier, once."""
    found = {}
    with spawned(function, folder, "plain") as (asked_s, talk):
        found["plain spawn"] = (await talk.hear())["done_s"] - asked_s
    with spawned(function, folder, "alone") as (_, talk):
        told = await talk.hear()
        found["alone"] = told["load_s"] + told["run_s"]
    asked_s, talk = await forked(forker, function, "cold")
    found["template"] = (await talk.hear())["done_s"] - asked_s
    talk.close()
    _, talk = await forked(forker, function, "loaded")
    await talk.hear()
    asked_s, told = await talk.again()
    found["loaded"] = told["done_s"] - asked_s
    again = [await talk.again() for _ in range(3)]
    found["hot"] = median(told["run_s"] for _, told in again)
    talk.close()
    return {tier: seconds * 1e3 for tier, seconds in found.items()}


async def forked(forker: Forker, function: str, tier: str) -> tuple[float, Talk]:
    """A fork of the template, and when it was asked for."""
    ours, theirs = socket.socketpair()
    asked_s = time.monotonic()
    process = await forker.fork({"function": function, "tier": tier}, [theirs.fileno(), 2])
    theirs.close()
    ours.send(b"\n")  # from now on the fork is a child of ours
    asyncio.get_running_loop().create_task(process.wait())
    return asked_s, Talk(ours)


async def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds by function and tier."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await write_inputs(folder)

        def command(control: int) -> list[str]:
            return [sys.executable, COLD, str(control), "template", str(folder)]

        found: dict[str, dict[str, list[float]]] = {what: {tier: [] for tier in TIERS} for what in FUNCTIONS}
        async with Forker(command, dict(os.environ), folder / "template.log") as forker:
            await forker.told()
            for turn in range(rounds + 1):
                for what, function in FUNCTIONS.items():
                    for tier, value in (await round_of(forker, function, folder)).items():
                        if turn:  # the first one fills the page cache
                            found[what][tier].append(value)
    return {what: {tier: median(values) for tier, values in tiers.items()} for what, tiers in found.items()}


def torch_times(rounds: int) -> tuple[float, float]:
    """Milliseconds of fresh processes that import torch and transformers' models of text, and that embed a sentence."""
    from embed import weights

    python = peer_python("embed", ["torch==2.13.0"], ["sentence-transformers==5.7.0", "fastembed==0.9.1"])
    code = "import torch; from transformers import AutoModel, AutoTokenizer; AutoModel, AutoTokenizer"
    imports: list[float] = []
    results: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        embeds = [str(ROOT / "benchmarks" / "peers" / "torch_cold.py"), str(weights(Path(folder))), SENTENCE]
        for turn in range(rounds + 1):
            for times, arguments in ((imports, ["-c", code]), (results, embeds)):
                started_s = time.monotonic()
                subprocess.run([str(python), *arguments], check=True, env=own_environment())
                if turn:  # the first one fills the page cache
                    times.append(time.monotonic() - started_s)
    return median(imports) * 1e3, median(results) * 1e3


def measurements(found: dict[str, dict[str, float]]) -> list[Measurement]:
    """Each tier beside what the goals compare it with."""
    results = []
    for what, tiers in found.items():
        spawn, fork, alone, loaded, hot = (tiers[tier] for tier in TIERS)
        name = f"{what}: from a template"
        results += [
            _beside(name, fork, "plain spawn", spawn, spawn / fork, ">= 5 x faster", spawn / fork >= 5),
            _beside(name, fork, "load, first run alone", alone, fork / alone, "<= 1.3", fork / alone <= 1.3),
            _beside(f"{what}: loaded", loaded, "hot", hot, loaded / hot, "<= 5 ms more", loaded - hot <= 5),
        ]
    encoder = found["text encoder"]["template"]
    name = "23 M parameters, template to first result"
    return [*results, Measurement(name=name, value=encoder, unit="ms", goal="<= 80", ok=encoder <= 80)]


def _beside(
    name: str, value: float, peer: str, peer_value: float, ratio: float, goal: str | None = None, ok: bool | None = None
) -> Measurement:
    return Measurement(
        name=name, value=value, unit="ms", peer=peer, peer_value=peer_value, ratio=ratio, goal=goal, ok=ok
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds: one round")
    parser.add_argument("--peers", action="store_true", help="how long torch and transformers take to be imported, too")
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("--plot", type=Path, help="write a chart there")
    arguments = parser.parse_args()
    found = asyncio.run(measured(1 if arguments.quick else 7))
    results = measurements(found)
    if arguments.peers:
        imports, embeds = torch_times(1 if arguments.quick else 3)
        for tier in ("plain spawn", "template"):
            value = found["text encoder"][tier]
            results += [
                _beside(f"text encoder: {tier}", value, "imports of torch", imports, imports / value),
                _beside(f"text encoder: {tier}", value, "torch, to a vector", embeds, embeds / value),
            ]
    report(results, arguments.json)
    if arguments.plot is not None:
        bars(arguments.plot, "To the first result, ms", found, TIERS)


if __name__ == "__main__":
    main()
