"""The child of `memory.py`: loads a model, runs it, tells of its memory at every line that it reads."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from functions.stages import generate
from runtime.engines import onnx
from runtime.engines.graph_cache import GraphCache, use_graph_cache
from runtime.engines.heap import give_back
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.grammar import GrammarCompiler
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Repository
from runtime.speech.whisper import Whisper
from runtime.text.embedder import TextEmbedder

IMPORTED = (Decoder, TextEngine, GrammarCompiler, ChatTokenizer)
"""What `generate` imports when it is set up, imported here so that each child has the same code."""


def embeds(repository: Repository) -> Any:
    """Embed a few sentences."""
    model = TextEmbedder.load(repository, "all-minilm-l6-v2")
    model.embed(["The quick brown fox jumps over the lazy dog."] * 4)
    model.settle()
    return model


def hears(repository: Repository) -> Any:
    """Listen to three seconds of a falling tone."""
    model = Whisper.load(repository)
    time_s = np.arange(48_000) / 16_000
    model.transcribe((0.1 * np.sin(2 * np.pi * (900 - 200 * time_s) * time_s)).astype(np.float32), language="en")
    return model


def writes(repository: Repository) -> Any:
    """Write sixteen tokens."""
    model = generate.setup(repository)
    ids = np.asarray(model.tokenizer.encode("The capital of France is"), np.int32)
    prompt = PromptTokens(ids, np.zeros((0, model.hidden), np.float32), "bench")

    async def write() -> None:
        async for _ in model.engine.submit(prompt, SamplingConfig(max_tokens=16)):
            pass

    asyncio.run(write())
    return model


LOADS: dict[str, Callable[[Repository], Any]] = {
    "none": lambda repository: None,
    "all-minilm-l6-v2": embeds,
    "whisper-base": hears,
    "smollm2-135m-instruct": writes,
}


def timed(spent: list[float]) -> None:
    """Note the time of every session that is opened."""
    opened = onnx.OnnxSession.__init__

    def init(self: onnx.OnnxSession, *args: Any, **settings: Any) -> None:
        started = time.perf_counter()
        opened(self, *args, **settings)
        spent.append(time.perf_counter() - started)

    onnx.OnnxSession.__init__ = init  # type: ignore[method-assign]


def sizes() -> dict[str, float]:
    """Proportional and unique set size, in MB."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    told = {name: int(rest.split()[0]) / 1e3 * 1.024 for name, _, rest in (line.partition(":") for line in lines)}
    return {"pss": told["Pss"], "rss": told["Rss"], "uss": told["Private_Clean"] + told["Private_Dirty"]}


def main() -> None:
    """Load, run, tell."""
    model, cache = sys.argv[1:]
    use_graph_cache(None if cache == "none" else GraphCache(Path(cache)))
    spent: list[float] = []
    timed(spent)
    kept = LOADS[model](Repository())
    give_back()  # as a worker does after it has set up
    print(json.dumps({"open_ms": 1e3 * sum(spent), **sizes()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(sizes()), flush=True)
    del kept


if __name__ == "__main__":
    main()
