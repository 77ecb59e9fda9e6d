"""What merging tokens costs: the same answers and the same meaning, at fewer and fewer tokens.

    python benchmarks/compression.py [--quick] [--json FILE] [--plot FOLDER]

Two encoders whose weights are at hand. whisper-base: its decoder writes greedily from what is left of the sound's
tokens; compared are its words with those from all tokens, and the mean token. EfficientNet: each of the 49 places of a
photo is classified by the token that stands for it; compared are classes with those of the place's own token, and the
two tokens. Beside merging stand two ways that do not look at the tokens: means of runs of equal length, and leaving out
all but every n-th.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _peers import own_environment, peer_python
from _plot import Points, plot
from _report import ROOT, Measurement, report
from _speech import Clip, spoken, words, wrong
from numpy.typing import NDArray
from PIL import Image

from bus.contracts import FramePiece
from runtime.engines.onnx import OnnxSession
from runtime.multimodal.family import Laid
from runtime.multimodal.merge import merge
from runtime.repository import Repository
from runtime.speech.whisper import Whisper
from runtime.vision.square import encoder_pixels

Floats = NDArray[np.float32]
Reduce = Callable[[Laid, int], Floats]

SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)


def merged(laid: Laid, tokens: int) -> Floats:
    """Similar neighbours together."""
    return merge(laid, tokens).embeddings


def pooled(laid: Laid, tokens: int) -> Floats:
    """Means of runs of equal length."""
    return np.stack([run.mean(axis=0) for run in np.array_split(laid.embeddings, tokens)])


def dropped(laid: Laid, tokens: int) -> Floats:
    """All but every n-th left out."""
    return laid.embeddings[np.linspace(0, len(laid.embeddings) - 1, tokens).round().astype(int)]


WAYS: Mapping[str, Reduce] = {"merged": merged, "pooled": pooled, "dropped": dropped}


class Reducing:
    """Whisper's encoder with fewer tokens behind it: keys and values of all layers, reduced alike."""

    def __init__(self, encoder: OnnxSession, reduce: Reduce, share: float) -> None:
        self._encoder, self._reduce, self._share = encoder, reduce, share
        self.outputs = encoder.outputs
        self.cosines: list[float] = []

    def run(self, inputs: Mapping[str, Any], *more: Any, **options: Any) -> list[Floats]:
        made = self._encoder.run(inputs, *more, **options)
        # (batch, head, frame, dim) of each output as (frame, head and dim) of all.
        rows = [
            np.concatenate([one[row].swapaxes(0, 1).reshape(one.shape[2], -1) for one in made], 1)
            for row in range(len(made[0]))
        ]
        count = max(1, round(len(rows[0]) * self._share))
        kept = [self._kept(row, count) for row in rows]
        widths = np.cumsum([one.shape[1] * one.shape[3] for one in made])[:-1]
        split = [np.split(row, widths, axis=1) for row in kept]
        return [
            np.stack(
                [
                    np.ascontiguousarray(row[place].reshape(count, one.shape[1], one.shape[3]).swapaxes(0, 1))
                    for row in split
                ]
            )
            for place, one in enumerate(made)
        ]

    def _kept(self, row: Floats, count: int) -> Floats:
        places = np.arange(len(row), dtype=np.int32)
        laid = Laid(row, np.stack([places] * 3), (FramePiece(slots=len(row)),), seconds_per_step=0.02)
        kept = row if count == len(row) else self._reduce(laid, count)
        self.cosines.append(cosine(row.mean(axis=0), kept.mean(axis=0)))
        return kept


def cosine(one: Floats, other: Floats) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def sound(repository: Repository, clips: Sequence[Clip]) -> Iterator[tuple[str, float, float, float]]:
    """Way, share, words as from all tokens, cosine."""
    whisper = Whisper.load(repository, threads=2)
    encoder = whisper._encoder
    right = [words(whisper.transcribe(clip.samples, language="en").text) for clip in clips]
    for way, reduce in WAYS.items():
        for share in SHARES:
            reducing = Reducing(encoder, reduce, share)
            whisper._encoder = reducing  # type: ignore[assignment]
            found = [words(whisper.transcribe(clip.samples, language="en").text) for clip in clips]
            same = 1 - sum(map(wrong, right, found)) / sum(map(len, right))
            yield way, share, max(0.0, same), float(np.mean(reducing.cosines))
    whisper._encoder = encoder


def photos(folder: Path) -> list[Image.Image]:
    """Six photos, and each turned about."""
    python = peer_python("photos", ["scikit-image", "scikit-learn", "pooch", "pillow"])
    subprocess.run(
        [str(python), str(ROOT / "benchmarks/peers/photos.py"), str(folder)], check=True, env=own_environment()
    )
    taken = [Image.open(path).convert("RGB") for path in sorted(folder.glob("*.png"))]
    return [*taken, *(one.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for one in taken)]


def pictures(
    repository: Repository, taken: Sequence[Image.Image], work: Path
) -> Iterator[tuple[str, float, float, float]]:
    """Way, share, classes of places as from all tokens, cosine of each token with the nearest that is kept."""
    manifest = repository.resolve("efficientnet-lite0")
    model = onnx.load(repository.file(manifest, "model.onnx"))
    (pool,) = (node for node in model.graph.node if node.op_type == "GlobalAveragePool")
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    weight, bias = (constants[name] for name in gemm.input[1:])
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(pool.input[0], onnx.TensorProto.FLOAT, ["n", 1280, 7, 7])
    )
    onnx.save(model, work / "tokens.onnx")
    session = OnnxSession(work / "tokens.onnx", threads=2)
    (maps,) = session.run({"pixel_values": np.stack([encoder_pixels(one) for one in taken])}, [pool.input[0]])
    row, column = (axis.reshape(-1) for axis in np.indices((7, 7)))
    regions = (np.stack([column, row, column + 1, row + 1], axis=1) / 7).astype(np.float32)
    positions = np.stack([row * 0, row, column]).astype(np.int32)
    for way, reduce in WAYS.items():
        for share in SHARES:
            count, same, cosines = max(1, round(49 * share)), list[float](), list[float]()
            for one in maps:
                tokens = np.ascontiguousarray(one.reshape(1280, 49).T)
                laid = Laid(tokens, positions, (FramePiece(slots=49),), None, regions)
                kept = tokens if count == 49 else reduce(laid, count)
                alike = (tokens / norms(tokens)) @ (kept / norms(kept)).T
                stands_in = kept[alike.argmax(axis=1)]
                classes = [(found @ weight.T + bias).argmax(axis=1) for found in (tokens, stands_in)]
                same.append(float((classes[0] == classes[1]).mean()))
                cosines.append(float(alike.max(axis=1).mean()))
            yield way, share, float(np.mean(same)), float(np.mean(cosines))


def norms(rows: Floats) -> Floats:
    """Lengths, as a column."""
    found: Floats = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds: two clips")
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("--plot", type=Path, help="write charts into this folder")
    arguments = parser.parse_args()
    repository = Repository()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        found = {"photo": list(pictures(repository, photos(work), work))}
        found["speech"] = list(sound(repository, spoken(repository, 2 if arguments.quick else 6)))
    results = []
    for what, rows in found.items():
        for way, share, same, alike in rows:
            kept = f"{what}, {share:.0%} of the tokens, {way}"
            results.append(Measurement(name=f"{kept}: same answer", value=same, unit="share"))
            results.append(Measurement(name=f"{kept}: tokens", value=alike, unit="cosine"))
    report(results, arguments.json)
    if arguments.plot is not None:
        for what, rows in found.items():
            for place, title in ((2, "Answers as from all tokens"), (3, "Cosine of the tokens")):
                lines: dict[str, Points] = {
                    way: [(row[1], row[place]) for row in rows if row[0] == way] for way in WAYS
                }
                chart = arguments.plot / f"compression-{what}-{('answers', 'cosine')[place - 2]}.svg"
                plot(chart, f"{title}: {what}", "share of tokens that is kept", title.lower(), lines, 1.0)


if __name__ == "__main__":
    main()
