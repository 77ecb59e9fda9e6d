"""MiniLM: 32 sentences of mixed length, and 32 clients with a sentence each, on this machine's processor.

    python benchmarks/embed.py [--quick] [--peers] [--json FILE]

`--peers` adds sentence-transformers (torch, float32) on the same weights, and fastembed on our own float32 ONNX export
of them: fastembed takes its models from a hub, so it is given ours through its custom models. Each is installed into
an environment of its own. Sides take turns, sentence by sentence the same; medians of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _peers import Peer, peer_python
from _report import Measurement, percentile, report

from functions.stages.text import embed
from runtime.engines.cores import use_cores
from runtime.repository import Repository, builtin_catalog
from runtime.repository.archive import copy_member
from runtime.repository.source import Source
from runtime.repository.sources import FETCHERS, Wanted

MODEL = "all-minilm-l6-v2"
WORDS = (
    "the quick brown fox jumps over a lazy dog and takes its nap in warm sun while rain falls on distant hills near "
    "an old river town where people sell bread fish wine every morning before dawn breaks"
)


def sentences(count: int = 32) -> list[str]:
    """Sentences of 3 to 90 words, most of them of 8 to 25, the same in every run."""
    random = np.random.default_rng(0)
    lengths = np.clip(np.round(random.lognormal(2.7, 0.7, count)), 3, 90).astype(int)
    return [" ".join(random.choice(WORDS.split(), length)) for length in lengths]


def uniform() -> list[str]:
    """Sentences of just the same length, of which no grouping gains anything."""
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS.split(), 18)) for _ in range(32)]


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds of a call."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


async def together(model: embed.Embedding, texts: list[str]) -> list[np.ndarray]:
    """Every text is a client of its own; all ask at once, as `text.embed` serves them."""

    async def ask(text: str) -> np.ndarray:
        (tokens,) = model.embedder.tokenize([text])
        (vector,) = await model.batcher.submit([(model.embedder.bucket(tokens), tokens)], tenant=text)
        return vector

    return await asyncio.gather(*map(ask, texts))


def ours(rounds: int) -> tuple[embed.Embedding, list[Measurement]]:
    """The rows that need nobody else."""
    model = embed.setup(Repository())
    texts = sentences()
    model.embedder.embed(texts)
    model.embedder.settle()
    alone_ms, shared_ms, batch_ms, one_ms = [], [], [], []
    for _ in range(rounds):
        alone_ms.append(timed(lambda: [model.embedder.embed([text]) for text in texts]))
        shared_ms.append(timed(lambda: asyncio.run(together(model, texts))))
        batch_ms.append(timed(lambda: model.embedder.embed(texts)))
        one_ms.append(timed(lambda: model.embedder.embed(texts[:1])))
    alone, shared = percentile(alone_ms, 0.5), percentile(shared_ms, 0.5)
    return model, [
        Measurement(name="one sentence", value=percentile(one_ms, 0.5), unit="ms"),
        Measurement(name="32 sentences of mixed length", value=percentile(batch_ms, 0.5), unit="ms"),
        Measurement(
            name="32 clients with a sentence each, shared runs", value=shared, unit="ms", peer="a run for each",
            peer_value=alone, ratio=alone / shared, goal="> 1", ok=alone / shared > 1,
        ),
    ]  # fmt: skip


def weights(folder: Path) -> Path:
    """The model's own folder as it is published, out of the downloads."""
    repository = Repository()
    (raw,) = builtin_catalog().get(MODEL).sources
    source = Source.parse(raw.source)
    wanted = Wanted(source=source, members=(), downloads=repository.downloads, sha256=raw.sha256)
    archive = FETCHERS[source.scheme](wanted)
    base = raw.files[0].member.rpartition("/")[0]
    for name in ("model.safetensors", "tokenizer.json", "config.json", *EXTRA):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            copy_member(archive, f"{base}/{name}", file)
    return folder


EXTRA = (
    "modules.json", "1_Pooling/config.json", "tokenizer_config.json", "special_tokens_map.json",
    "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip


def export(folder: Path, raw: Path) -> Path:
    """Our float32 export as fastembed takes a model: with 64-bit token ids, and the tokenizer's settings beside it."""
    repository = Repository()
    shutil.copytree(repository.folder(repository.resolve(MODEL)), folder)
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copyfile(raw / name, folder / name)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for port in model.graph.input:
        for node in model.graph.node:
            node.input[:] = [f"{name}.int32" if name == port.name else name for name in node.input]
        cast = onnx.helper.make_node("Cast", [port.name], [f"{port.name}.int32"], to=onnx.TensorProto.INT32)
        model.graph.node.insert(0, cast)
        port.type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, folder / "model.onnx")
    return folder


def beside_peers(model: embed.Embedding, rounds: int, folder: Path) -> list[Measurement]:
    """The same sentences on the peers, in turns with ours."""
    raw = weights(folder / "raw")
    python = peer_python("embed", ["torch==2.13.0"], ["sentence-transformers==5.7.0", "fastembed==0.9.1"])
    peers = {
        "sentence-transformers": ("embed_sentence_transformers.py", raw, 1.5),
        "fastembed, our export": ("embed_fastembed.py", export(folder / "onnx", raw), 1.1),
    }
    results = []
    for name, (script, place, goal) in peers.items():
        with Peer(python, script, str(place), str(os.cpu_count() or 1)) as peer:
            results.append(beside(model, rounds, name, peer, sentences(), goal))
            results.append(beside(model, rounds, name, peer, uniform(), None))
    return results


def beside(
    model: embed.Embedding, rounds: int, name: str, peer: Peer, texts: list[str], goal: float | None
) -> Measurement:
    """One peer, in turns with ours; its vectors are checked first."""
    vectors = np.asarray(peer.ask(texts=texts)["vectors"], np.float32)
    own, _ = model.embedder.embed(texts)
    cosine = float((own * vectors).sum(axis=1).min())
    if cosine < 0.999:
        raise RuntimeError(f"{name} does not calculate the same: cosine {cosine}")
    own_ms, peer_ms = [], []
    for _ in range(rounds):
        own_ms.append(timed(lambda: model.embedder.embed(texts)))
        peer_ms.append(peer.ask(texts=texts)["ms"])
    mine, theirs = percentile(own_ms, 0.5), percentile(peer_ms, 0.5)
    return Measurement(
        name="32 sentences of one length" if goal is None else "32 sentences of mixed length",
        value=mine,
        unit="ms",
        peer=name,
        peer_value=theirs,
        ratio=theirs / mine,
        goal=None if goal is None else f">= {goal}",
        ok=None if goal is None else theirs / mine >= goal,
    )


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="beside sentence-transformers and fastembed")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    use_cores(os.cpu_count() or 1)
    rounds = 5 if arguments.quick else 15
    model, results = ours(rounds)
    if arguments.peers:
        with tempfile.TemporaryDirectory(prefix="omnibus-embed-") as folder:
            results += beside_peers(model, rounds, Path(folder))
    model.close()
    report(results, arguments.json)


if __name__ == "__main__":
    main()
