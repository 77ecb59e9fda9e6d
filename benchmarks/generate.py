"""How fast the generation engine decodes, alone and for many at once, beside what else runs the same weights.

    python benchmarks/generate.py [--quick] [--peers] [--json FILE]

Every decoder takes the same prompt and goes on greedily for as many tokens on two threads; rounds are interleaved and
medians compared. `--peers` adds llama.cpp (built from its source package, the files made by its own quantiser), ONNX
Runtime GenAI on our own graph, and transformers. The time is that of the tokens behind the first one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import uvloop
from _peers import Peer, peer_python
from _report import Measurement, percentile, report

from bus.contracts import ModelManifest
from runtime.generation.decoder import Decoder
from runtime.generation.engine import TextEngine
from runtime.generation.limits import EngineConfig
from runtime.generation.request import PromptTokens
from runtime.generation.sampling import SamplingConfig
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Catalog, Repository

MODELS = {"q4": "smollm2-135m-instruct", "q8": "smollm2-135m-instruct-q8"}
THREADS, STREAMS = 2, 8
QUESTION = "Write a long story about a fox who learns to swim."


class Ours:
    """An engine on one form of the model, and its tokenizer."""

    def __init__(self, repository: Repository, name: str) -> None:
        self.manifest: ModelManifest = repository.pull(name)[-1]
        self.folder = repository.folder(self.manifest)
        self.tokenizer = ChatTokenizer(self.folder)
        self._end = tuple((token, -1e9) for token in self.manifest.parameters["end_tokens"])

    def open(self, prefix_cache_nbytes: int = 0, repeatable: bool = True) -> TextEngine:
        """A new engine."""
        decoder = Decoder(self.folder, self.manifest, slots=STREAMS, threads=THREADS)
        config = EngineConfig(prefix_cache_nbytes=prefix_cache_nbytes, repeatable=repeatable)
        engine = TextEngine(decoder, self.tokenizer.token_bytes, config)
        engine.open()
        return engine

    def prompt(self, question: str) -> PromptTokens:
        """A question in the model's own form of a chat."""
        text = self.tokenizer.chat([{"role": "user", "content": question}])
        ids = self.tokenizer.encode(text, markup=True)
        return PromptTokens(ids, np.zeros((0, self.manifest.dims["hidden"]), np.float32))

    async def answer(
        self, engine: TextEngine, prompt: PromptTokens, tokens: int, prediction: np.ndarray | None = None
    ) -> tuple[list[float], list[int]]:
        """When each token came, and the tokens."""
        times, ids = list[float](), list[int]()
        sampling = SamplingConfig(max_tokens=tokens, logit_bias=self._end)
        async for piece in engine.submit(prompt, sampling, prediction=prediction):
            times += [time.perf_counter()] * len(piece.token_ids)
            ids += piece.token_ids
        return times, ids


async def one_stream(ours: Ours, engine: TextEngine, tokens: int) -> float:
    """Tokens per second of an answer that is alone."""
    times, _ = await ours.answer(engine, ours.prompt(QUESTION), tokens + 1)
    return tokens / (times[-1] - times[0])


async def many_streams(ours: Ours, engine: TextEngine, tokens: int) -> tuple[float, list[float]]:
    """Tokens per second of eight places that answers of several lengths join and leave, and the gaps between tokens."""
    prompt = ours.prompt(QUESTION)
    lengths = iter([tokens // 2 + tokens * place // STREAMS for place in range(2 * STREAMS)])

    async def place() -> list[list[float]]:
        return [(await ours.answer(engine, prompt, length))[0] for length in lengths]

    started = time.perf_counter()
    places = await asyncio.gather(*(place() for _ in range(STREAMS)))
    answers = [times for place in places for times in place]
    # Until the first place has nothing more to answer: behind that fewer than eight run.
    full = min(place[-1][-1] for place in places)
    made = [at for times in answers for at in times if at <= full]
    gaps = [after - before for times in answers for before, after in pairwise(times)]
    return len(made) / (full - started), gaps


async def first_token(ours: Ours, engine: TextEngine, shared: int, turn: int) -> float:
    """Seconds to the first token of a prompt of 520 tokens, some of which another prompt began with."""
    random = np.random.default_rng(0 if shared else 1000 + turn)
    begin = random.integers(1000, 40_000, shared or 500)
    rest = np.random.default_rng(turn).integers(1000, 40_000, 20)
    ids = np.concatenate([begin, rest]).astype(np.int32)
    started = time.perf_counter()
    times, _ = await ours.answer(engine, PromptTokens(ids, ours.prompt("").embeddings), 1)
    return times[0] - started


def memory_bandwidth() -> float:
    """Bytes per second that a product of a matrix and a vector reads, with a matrix that no cache holds."""
    matrix, vector = np.ones((2**14, 2**13), np.float32), np.ones(2**13, np.float32)

    def turn() -> float:
        started = time.perf_counter()
        np.dot(matrix, vector)
        return matrix.nbytes / (time.perf_counter() - started)

    return max(turn() for _ in range(8))


def token_nbytes(folder: Path) -> int:
    """Bytes of weights that a token of one stream reads: all but the tables of angles."""
    return (folder / "model.data").stat().st_size


def open_peers(stack: ExitStack, ours: Ours, gguf: Path, work: Path) -> dict[str, Peer]:
    """Peers by name, ready to be asked."""
    llama = peer_python(
        "llama.cpp",
        ["cmake", "ninja", "scikit-build-core"],
        ["--no-build-isolation", "llama-cpp-python==0.3.36"],
        variables={"CMAKE_ARGS": "-DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF"},
    )
    genai = peer_python("genai", ["onnxruntime-genai", "onnx"])
    torch = peer_python("transformers", ["torch==2.13.0"], ["transformers", "gguf", "accelerate"])
    (work / "genai").mkdir()
    arguments = [str(gguf), str(work)]
    made = {
        f"llama.cpp {kind}": Peer(llama, "llama_cpp_decode.py", *arguments, kind, str(THREADS))
        for kind in ("Q8_0", "Q4_1", "F32")
    }
    made["ORT GenAI, our q8 graph"] = Peer(
        genai, "genai_decode.py", str(ours.folder), str(work / "genai"), str(THREADS)
    )
    made["transformers float32"] = Peer(torch, "transformers_decode.py", str(gguf), str(THREADS))
    return {name: stack.enter_context(peer) for name, peer in made.items()}


def raw_gguf(repository: Repository, work: Path) -> Path:
    """The file that every form of the model is made from."""
    entry = repository.catalog.get(MODELS["q8"])
    raw = Repository(
        work / "raw",
        downloads=repository.downloads,
        catalog=Catalog((entry.model_copy(update={"build": None, "needs": ()}),)),
    )
    (pulled,) = raw.pull(entry.id)
    return raw.file(pulled, "model.gguf")


async def alone(
    forms: dict[str, Ours], engines: dict[str, TextEngine], peers: dict[str, Peer], tokens: int, rounds: int
) -> dict[str, float]:
    """Median tokens per second of one stream, by name; interleaved."""
    rates: dict[str, list[float]] = {}
    prompt = forms["q8"].prompt(QUESTION).ids.tolist()
    for turn in range(rounds + 1):
        found = {f"ours {name}": await one_stream(forms[name], engines[name], tokens) for name in forms}
        for name, peer in peers.items():
            count = tokens if "transformers" not in name else tokens // 4
            answer = await asyncio.to_thread(peer.ask, prompt=prompt, tokens=count, streams=1)
            found[name] = count / answer["seconds"]
        if turn:  # the first one warms up
            for name, rate in found.items():
                rates.setdefault(name, []).append(rate)
    return {name: median(values) for name, values in rates.items()}


def compared(rates: dict[str, float], bandwidth: float, forms: dict[str, Ours]) -> list[Measurement]:
    """One stream: each form beside the limit of the memory and beside each peer."""
    goals = {"llama.cpp Q8_0": 1.15, "ORT GenAI, our q8 graph": 1.3}
    results = []
    for name, ours in forms.items():
        rate = rates[f"ours {name}"]
        limit = bandwidth / token_nbytes(ours.folder)
        goal = {"goal": ">= 0.5", "ok": rate / limit >= 0.5}
        what = f"decode, one stream, {name}"
        results.append(_measurement(what, rate, "limit of the memory", limit, **goal))
        for peer, value in rates.items():
            if peer.startswith("ours"):
                continue
            least = goals.get(peer)
            goal = {} if least is None else {"goal": f">= {least}", "ok": rate / value >= least}
            results.append(_measurement(what, rate, peer, value, **goal))
    return results


def _measurement(name: str, value: float, peer: str, peer_value: float, unit: str = "tok/s", **goal) -> Measurement:  # type: ignore[no-untyped-def]
    return Measurement(
        name=name, value=value, unit=unit, peer=peer, peer_value=peer_value, ratio=value / peer_value, **goal
    )


async def together(
    ours: Ours, engine: TextEngine, rounds: int, tokens: int, name: str, llama: Peer | None
) -> list[Measurement]:
    """Eight streams beside one, measured in turns."""
    await many_streams(ours, engine, 8)
    prompt = ours.prompt(QUESTION).ids.tolist()
    ones, manies, gaps, others = [], [], list[float](), []
    for _ in range(rounds):
        ones.append(await one_stream(ours, engine, tokens))
        rate, found = await many_streams(ours, engine, tokens)
        manies.append(rate)
        gaps += found
        if llama is not None:
            answer = await asyncio.to_thread(llama.ask, prompt=prompt, tokens=tokens, streams=STREAMS)
            others.append(STREAMS * tokens / answer["seconds"])
    one, many = median(ones), median(manies)
    median_gap, slow_gap = percentile(gaps, 0.5) * 1e3, percentile(gaps, 0.99) * 1e3
    what = f"decode, eight streams, {name}"
    results = [_measurement(what, many, "one stream", one, goal=">= 3", ok=many / one >= 3)]
    if others:
        results.append(_measurement(what, many, "llama.cpp Q8_0, eight", median(others)))
    goal = {"goal": "<= 2", "ok": slow_gap / median_gap <= 2}
    what = f"gap between tokens, eight streams, {name}, p99"
    return [*results, _measurement(what, slow_gap, "p50", median_gap, "ms", **goal)]


async def prefixes(ours: Ours, rounds: int) -> Measurement:
    """The first token of a prompt that begins like another one, beside one that does not."""
    engine = ours.open(prefix_cache_nbytes=2**27)
    try:
        await first_token(ours, engine, 500, turn=-1 + 2**31)
        known, cold = [], []
        for turn in range(rounds):
            known.append(await first_token(ours, engine, 500, turn))
            cold.append(await first_token(ours, engine, 0, turn))
    finally:
        engine.close()
    value, other = median(known) * 1e3, median(cold) * 1e3
    goal = {"goal": "<= 0.2", "ok": value / other <= 0.2}
    return _measurement("first token, 500 of 520 tokens shared", value, "nothing shared", other, "ms", **goal)


async def predictions(ours: Ours, engine: TextEngine, rounds: int, tokens: int, name: str) -> list[Measurement]:
    """Answers that the request predicts: all of it, or but for one token in ten."""
    prompt = ours.prompt(QUESTION)
    _, right = await ours.answer(engine, prompt, tokens + 1)
    edited = [token if place % 10 else 500 for place, token in enumerate(right)]
    cases = {"all": right, "nine tokens in ten": edited}
    rates: dict[str, list[float]] = {"nothing": []} | {what: [] for what in cases}
    for _ in range(rounds):
        rates["nothing"].append(await one_stream(ours, engine, tokens))
        for what, predicted in cases.items():
            times, _ = await ours.answer(engine, prompt, tokens + 1, np.array(predicted, np.int32))
            rates[what].append(tokens / (times[-1] - times[0]))
    plain = median(rates["nothing"])
    return [
        _measurement(f"decode, {what} predicted, {name}", median(rates[what]), "nothing predicted", plain)
        for what in cases
    ]


async def _measure(quick: bool, with_peers: bool) -> list[Measurement]:
    repository = Repository()
    rounds, tokens = (1, 40) if quick else (5, 128)
    forms = {name: Ours(repository, model) for name, model in MODELS.items()}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gguf = raw_gguf(repository, work) if with_peers else None
        peers = {} if gguf is None else open_peers(stack, forms["q8"], gguf, work)
        # The same weights without the promise that no answer depends on who else is there.
        forms["q4, not repeatable"] = forms["q4"]
        engines = {name: ours.open(repeatable="not" not in name) for name, ours in forms.items()}
        bandwidth = memory_bandwidth()
        results = compared(await alone(forms, engines, peers, tokens, rounds), bandwidth, forms)
        for name in MODELS:
            llama = peers.get("llama.cpp Q8_0")
            results += await together(forms[name], engines[name], max(1, rounds // 2), tokens, name, llama)
        results += await predictions(forms["q4"], engines["q4"], rounds, tokens, "q4")
        for engine in engines.values():
            engine.close()
    results.append(await prefixes(forms["q4"], rounds))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds, less exact")
    parser.add_argument("--peers", action="store_true", help="llama.cpp, ONNX Runtime GenAI and transformers, too")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(uvloop.run(_measure(arguments.quick, arguments.peers)), arguments.json)


if __name__ == "__main__":
    main()
