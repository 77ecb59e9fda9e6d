"""From a photo to the tokens of a prompt: preparing a picture, a vision tower, and fusion.

    python benchmarks/encode.py [--quick] [--peers] [--json FILE]

A JPEG of 12 megapixels becomes 384 × 384 pixels, bicubic: from the whole photo, and from one that is shrunk while it is
decoded; the reference also normalises, which our encoders' first matrix does. The tower has SigLIP-base's sizes and
random weights; eight pictures run together. `--peers` adds transformers (torch, float32) in an environment of its own:
its image processor on the same file and its tower with the same weights, turn by turn; what comes out is compared
first. Medians.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _peers import Peer, peer_python
from _photo import jpeg, photo
from _report import Measurement, percentile, report
from numpy.typing import NDArray

from bus.contracts import FramePiece, MediaLimits, Modality
from functions.stages.layout import Layout
from functions.stages.pieces import Markup, SoftTokens, Words
from functions.stages.prompt import LANGUAGE_MODEL
from runtime.engines.cores import use_cores
from runtime.engines.onnx import OnnxSession
from runtime.generation.tokenizer import ChatTokenizer
from runtime.graphs.encoders.patches import PatchShape, embedding, positions, square_patches
from runtime.graphs.encoders.pixels import Normalisation
from runtime.graphs.encoders.tensors import EncoderTensors
from runtime.graphs.encoders.transformer import Tower, TowerShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import Graph
from runtime.media.images import decode
from runtime.repository import Repository
from runtime.weights.folder import SafetensorsFolder
from runtime.weights.tensors import CheckedTensors

Floats = NDArray[np.float32]

SIDE, BATCH, BICUBIC = 384, 8, 3
TOWER_SIDE = 224
HALF = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3)
HOMES = {"vision_model.": "", "": ""}
# What `embed.py` installs: both share the environment.
PACKAGES = (["torch==2.13.0"], ["sentence-transformers==5.7.0", "fastembed==0.9.1"])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of a call, and what it gave."""
    started = time.perf_counter()
    found = work()
    return (time.perf_counter() - started) * 1e3, found


def prepared(data: bytes, *, exact: bool) -> NDArray[np.uint8]:
    """The picture as our encoders take it, `(row, column, channel)`: their first matrix normalises."""
    resolution = None if exact else (lambda width, height: (SIDE, SIDE))
    (picture,) = decode(data, MediaLimits(), resolution=resolution)
    return np.asarray(picture.image.resize((SIDE, SIDE), BICUBIC))


def pictures(data: bytes, peer: Peer | None, folder: Path, rounds: int) -> list[Measurement]:
    """The rows of preparing."""
    path, out = folder / "photo.jpg", folder / "right.npy"
    path.write_bytes(data)
    spent: dict[str, list[float]] = {"decoding": [], "whole": [], "shrunk": [], "peer": []}
    exact, near = prepared(data, exact=True), prepared(data, exact=False)
    if peer is not None:
        peer.ask(photo=str(path), out=str(out))
    for _ in range(rounds):
        spent["decoding"].append(timed(lambda: decode(data, MediaLimits()))[0])
        spent["whole"].append(timed(lambda: prepared(data, exact=True))[0])
        spent["shrunk"].append(timed(lambda: prepared(data, exact=False))[0])
        if peer is not None:
            spent["peer"].append(peer.ask(photo=str(path), out=str(out))["ms"])
    medians = {name: percentile(values, 0.5) for name, values in spent.items() if values}
    if peer is not None:
        off = float(np.abs(np.load(out)[0].transpose(1, 2, 0) - HALF.apply(exact)).max())
        if off > 1e-6:
            raise RuntimeError(f"the reference has other pixels: they differ by {off}")
    deviation = float(np.abs(near.astype(np.int64) - exact).max())
    return [
        Measurement(name="decode a 12-megapixel JPEG", value=medians["decoding"], unit="ms"),
        _beside("to 384 × 384, from the whole photo", medians, "whole", 1.5),
        _beside("to 384 × 384, shrunk while decoded", medians, "shrunk", 5),
        Measurement(
            name="largest deviation of the shrunk one", value=deviation, unit="/255", goal="<= 2", ok=deviation <= 2
        ),
    ]


def _beside(name: str, medians: dict[str, float], own: str, goal: float) -> Measurement:
    theirs = medians.get("peer")
    ratio = None if theirs is None else theirs / medians[own]
    return Measurement(
        name=name,
        value=medians[own],
        unit="ms",
        peer=None if theirs is None else "transformers",
        peer_value=theirs,
        ratio=ratio,
        goal=None if ratio is None else f">= {goal:g}",
        ok=None if ratio is None else ratio >= goal,
    )


def tower(folder: Path, read: CheckedTensors) -> OnnxSession:
    """SigLIP-base as a graph of ours."""
    config = ModelConfig({
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 12,
        "image_size": TOWER_SIDE, "patch_size": 16,
    })  # fmt: skip
    graph, cut = Graph("tower"), PatchShape.read(config)
    pixels = graph.input("pixels", np.uint8, ("tile", TOWER_SIDE, TOWER_SIDE, 3))
    matrix, bias = embedding(read, cut, HALF, "")
    value = square_patches(graph, pixels, cut.trained, cut.patch, matrix, positions(read, cut, "") + bias)
    value = Tower(graph, read, TowerShape.read(config), "").layers(value, norm="post_layernorm")
    graph.output(value, "embeddings", np.float32, ("tile", cut.trained**2, 768))
    graph.save(folder / "vision.onnx")
    return OnnxSession(folder / "vision.onnx")


class Drawn:
    """Random weights, where no peer has made some."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.shapes: Any = {}

    def __call__(self, name: str, *shape: int) -> Floats:
        """A weight of any name."""
        return (self._random.standard_normal(shape) * 0.02).astype(np.float32)


def encoding(peer: Peer | None, folder: Path, rounds: int) -> list[Measurement]:
    """The rows of the tower."""
    made: Any = Drawn()
    if peer is not None:
        made = CheckedTensors(EncoderTensors(SafetensorsFolder(folder), HOMES))
    session = tower(folder, made)
    pixels = np.random.default_rng(1).integers(0, 256, (BATCH, TOWER_SIDE, TOWER_SIDE, 3)).astype(np.uint8)
    given, out = folder / "pixels.npy", folder / "encoded.npy"
    np.save(given, HALF.apply(pixels).transpose(0, 3, 1, 2))
    (own,) = session.run({"pixels": pixels})
    if peer is not None:
        peer.ask(pixels=str(given), out=str(out))
        if (off := float(np.abs(np.load(out) - own).max())) > 1e-3:
            raise RuntimeError(f"the reference encodes otherwise: values differ by {off}")
    own_ms, peer_ms = [], []
    for _ in range(rounds):
        own_ms.append(timed(lambda: session.run({"pixels": pixels}))[0])
        if peer is not None:
            peer_ms.append(peer.ask(pixels=str(given), out=str(out))["ms"])
    mine = BATCH * 1e3 / percentile(own_ms, 0.5)
    theirs = BATCH * 1e3 / percentile(peer_ms, 0.5) if peer_ms else None
    ratio = None if theirs is None else mine / theirs
    return [
        Measurement(
            name="a tower of 86 M parameters, 8 pictures of 224 × 224", value=mine, unit="/s",
            peer=None if theirs is None else "transformers", peer_value=theirs, ratio=ratio,
            goal=None if ratio is None else ">= 1", ok=None if ratio is None else ratio >= 1,
        )
    ]  # fmt: skip


def fusing() -> list[Measurement]:
    """4,000 tokens: a film's 62 pieces with their marks, between what was written."""
    repository = Repository()
    manifest = repository.resolve(LANGUAGE_MODEL)
    tokenizer, hidden = ChatTokenizer(repository.folder(manifest)), manifest.dims["hidden"]
    count, slots = 62, 62
    frame = tuple(
        piece
        for number in range(count)
        for piece in (FramePiece(text=f"<|im_start|>{number}:"), FramePiece(slots=slots))
    )
    rows = np.zeros((count * slots, hidden), np.float32)
    soft = SoftTokens(Modality.VIDEO, rows, np.tile(np.arange(len(rows), dtype=np.int32), (3, 1)), 0, frame)

    def fuse() -> int:
        layout = Layout(tokenizer, hidden)
        for piece in (Markup("<|im_start|>user\n"), soft, Words(Modality.TEXT, "What happens in this film?")):
            layout.add(piece)
        layout.add(Markup("<|im_end|>\n<|im_start|>assistant\n"))
        return len(layout.finish().ids)

    if fuse() < 4000:
        raise RuntimeError(f"only {fuse()} tokens were fused")
    spent = percentile([timed(fuse)[0] for _ in range(100)], 0.5)
    return [Measurement(name=f"fuse {fuse():,} tokens", value=spent, unit="ms", goal="<= 2", ok=spent <= 2)]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="beside transformers")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    use_cores(cores)
    rounds, turns = (3, 2) if arguments.quick else (15, 7)
    data = jpeg(photo())
    with tempfile.TemporaryDirectory(prefix="omnibus-encode-") as name:
        folder = Path(name)
        if not arguments.peers:
            results = pictures(data, None, folder, rounds) + encoding(None, folder, turns)
        else:
            python = peer_python("embed", *PACKAGES)
            with Peer(python, "transformers_images.py", name, str(cores), str(TOWER_SIDE)) as peer:
                results = pictures(data, peer, folder, rounds) + encoding(peer, folder, turns)
        results += fusing()
    report(results, arguments.json)


if __name__ == "__main__":
    main()
