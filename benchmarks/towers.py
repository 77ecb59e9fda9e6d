"""Media of different sizes through one encoder together, and the frames of a long film.

    python benchmarks/towers.py [--quick] [--peers] [--json FILE]

The towers of Qwen2.5-Omni in small, with random weights: eight pictures of eight shapes, and eight clips of eight
lengths, as they come from different requests; run together, and one after the other. `--peers` adds transformers
(torch, float32) in an environment of its own, with the same weights, turn by turn; what comes out is compared first. A
film of ten minutes is drawn, and 64 moments of it are looked at: by its keyframes, which are two seconds apart, and by
decoding all of it. Medians.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from _peers import Peer, peer_python
from _report import Measurement, percentile, report
from encode import PACKAGES, Drawn, timed
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from runtime.engines.cores import use_cores
from runtime.engines.onnx import OnnxSession
from runtime.graphs.encoders.hearing import HearingNames, HearingShape, hearing, sinusoids
from runtime.graphs.encoders.pixels import Normalisation
from runtime.graphs.encoders.qwen_tower import QwenTowerShape, qwen_vision
from runtime.graphs.encoders.tensors import EncoderTensors
from runtime.graphs.families.config import ModelConfig
from runtime.media.video import open_video
from runtime.multimodal.hearing import Hearing
from runtime.multimodal.patching import Grid, Patching, by_size
from runtime.weights.folder import SafetensorsFolder
from runtime.weights.tensors import CheckedTensors

OUT = 896
SIZES: dict[str, dict[str, Any]] = {
    "vision": {
        "depth": 4, "hidden_size": 512, "intermediate_size": 1376, "num_heads": 8, "out_hidden_size": OUT,
        "fullatt_block_indexes": [1, 3],
    },
    "audio": {
        "d_model": 512, "encoder_layers": 4, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048, "output_dim": OUT,
    },
}  # fmt: skip
GRIDS: list[Grid] = [(1, 8, 8), (1, 16, 9), (1, 9, 16), (1, 5, 20), (1, 12, 12), (1, 7, 9), (1, 16, 16), (1, 4, 30)]
SECONDS = (1.3, 2.0, 3.7, 5.0, 6.4, 8.0, 9.9, 12.5)
PLAIN = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3)
MINUTES, RATE, MOMENTS = 10, 5, 64

Together = Callable[[Sequence[int]], NDArray[Any]]


class Seeing:
    """The vision tower, and pictures for it."""

    unit = "pictures"

    def __init__(self, folder: Path, read: Any) -> None:
        shape = QwenTowerShape.read(ModelConfig(SIZES["vision"]), OUT, windows=True, apart=True)
        qwen_vision(shape, read, PLAIN).save(folder / "vision.onnx")
        self._session = OnnxSession(folder / "vision.onnx")
        self._cut = Patching(shape.patch, shape.frames, shape.merge, shape.window)
        random = np.random.default_rng(1)
        self._patches = [random.integers(0, 256, (rows * columns * 4, 1176), np.uint8) for _, rows, columns in GRIDS]
        self.count = len(GRIDS)

    def run(self, places: Sequence[int]) -> NDArray[Any]:
        """Tokens of some of the pictures, in the order that they run in."""
        inputs = self._cut.packed([self._patches[place] for place in places], [GRIDS[place] for place in places])
        found: NDArray[Any] = self._session.run(inputs)[0]
        return found

    def request(self, folder: Path) -> dict[str, Any]:
        """The same for the reference."""
        order = by_size(GRIDS)
        bytes_of = np.concatenate([self._patches[place] for place in order]).reshape(-1, 2, 14, 14, 3)
        np.save(folder / "patches.npy", PLAIN.apply(bytes_of).transpose(0, 4, 1, 2, 3).reshape(len(bytes_of), -1))
        grids = [[1, 2 * GRIDS[place][1], 2 * GRIDS[place][2]] for place in order]
        return {"patches": str(folder / "patches.npy"), "grids": grids}


class Listening:
    """The audio tower, and clips for it."""

    unit = "clips"

    def __init__(self, folder: Path, read: Any) -> None:
        config = ModelConfig({**SIZES["audio"], "num_mel_bins": 128})
        shape = HearingShape.read(config)
        names = HearingNames("audio.ln_post", "audio.proj", sinusoids(shape.positions, shape.tower.hidden))
        hearing(shape, read, names, OUT).save(folder / "audio.onnx")
        self._session = OnnxSession(folder / "audio.onnx")
        self._heard = Hearing(shape.mels, 200, across=True)
        random = np.random.default_rng(2)
        clips = [random.standard_normal(int(seconds * 16_000)).astype(np.float32) * 0.1 for seconds in SECONDS]
        self._clips = [self._heard.chunks(clip, 30_000) for clip in clips]
        self.count = len(SECONDS)

    def run(self, places: Sequence[int]) -> NDArray[Any]:
        """Tokens of some of the clips."""
        found: NDArray[Any] = self._session.run(self._heard.packed([self._clips[place] for place in places]))[0]
        return found

    def request(self, folder: Path) -> dict[str, Any]:
        """The same for the reference."""
        np.save(folder / "mel.npy", np.concatenate([clip["mel"] for clip in self._clips], axis=1))
        return {"mel": str(folder / "mel.npy"), "lengths": [clip["mel"].shape[1] for clip in self._clips]}


def encoding(tower: Seeing | Listening, peer: Peer | None, folder: Path, rounds: int) -> list[Measurement]:
    """Media a second: together, beside the reference, and one after the other."""
    everything, out = range(tower.count), folder / "out.npy"
    request = {**tower.request(folder), "out": str(out)}
    own = tower.run(everything)
    if peer is not None:
        peer.ask(**request)
        if (off := float(np.abs(np.load(out) - own).max())) > 1e-3:
            raise RuntimeError(f"the reference encodes otherwise: values differ by {off}")
    spent: dict[str, list[float]] = {"together": [], "alone": [], "peer": []}
    for _ in range(rounds):
        spent["together"].append(timed(lambda: tower.run(everything))[0])
        if peer is not None:
            spent["peer"].append(peer.ask(**request)["ms"])
        spent["alone"].append(timed(lambda: [tower.run([place]) for place in everything])[0])
    rate = {name: tower.count * 1e3 / percentile(values, 0.5) for name, values in spent.items() if values}
    what = f"{tower.count} {tower.unit} of different sizes"
    return [
        _beside(f"{what}, together", rate["together"], "/s", "transformers", rate.get("peer"), goal=1.0),
        _beside(f"{what}, one after the other", rate["alone"], "/s", "together", rate["together"]),
    ]


def _beside(
    name: str, value: float, unit: str, peer: str, theirs: float | None, goal: float | None = None
) -> Measurement:
    if theirs is None:
        return Measurement(name=name, value=value, unit=unit)
    ratio = value / theirs
    aim = None if goal is None else f">= {goal:g}"
    met = None if goal is None else ratio >= goal
    return Measurement(name=name, value=value, unit=unit, peer=peer, peer_value=theirs, ratio=ratio, goal=aim, ok=met)


def drawn_film() -> bytes:
    """Squares that wander; a keyframe every two seconds."""
    out, random = io.BytesIO(), np.random.default_rng(3)
    squares = random.integers(0, 256, (9, 16, 3), np.uint8).repeat(20, axis=0).repeat(20, axis=1)
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=RATE, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        stream.codec_context.gop_size = 2 * RATE
        for index in range(MINUTES * 60 * RATE):
            frame = av.VideoFrame.from_ndarray(np.roll(squares, index, axis=1), format="rgb24")
            file.mux(stream.encode(frame.reformat(format="yuv420p")))
        file.mux(stream.encode(None))
    return out.getvalue()


def looking(rounds: int) -> list[Measurement]:
    """Moments of a long film."""
    data, clock = drawn_film(), Fraction(1, RATE)
    moments = [(index + 0.5) * MINUTES * 60 / MOMENTS for index in range(MOMENTS)]

    def by_keyframes() -> tuple[list[float], int]:
        with open_video(data, MediaLimits()) as video:
            return [frame.time_s for frame in video.frames.at(moments)], video.frames.decoded

    def whole() -> list[float]:
        wanted, found = {int(moment / clock) for moment in moments}, []
        with av.open(io.BytesIO(data), "r") as file:
            for index, frame in enumerate(file.decode(video=0)):
                if index in wanted:
                    found.append(float(index * clock))
                    frame.to_ndarray(format="rgb24")
        return found

    times, decoded = by_keyframes()
    if times != whole():
        raise RuntimeError("the two ways find other frames")
    own_ms, their_ms = [], []
    for _ in range(rounds):
        own_ms.append(timed(by_keyframes)[0])
        their_ms.append(timed(whole)[0])
    own, theirs = percentile(own_ms, 0.5), percentile(their_ms, 0.5)
    name, frames = f"{MOMENTS} moments of a film of {MINUTES} minutes", MINUTES * 60 * RATE
    return [
        Measurement(name=name, value=own, unit="ms", peer="all frames decoded", peer_value=theirs, ratio=theirs / own),
        Measurement(name="frames decoded for them", value=decoded, unit="", peer="in the film", peer_value=frames),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--peers", action="store_true", help="beside transformers")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    use_cores(cores)
    rounds = 2 if arguments.quick else 9
    with tempfile.TemporaryDirectory(prefix="omnibus-towers-") as name:
        folder = Path(name)
        (folder / "sizes.json").write_text(json.dumps(SIZES))
        towers: list[tuple[str, Any]] = [("vision", Seeing), ("audio", Listening)]
        results: list[Measurement] = []
        if not arguments.peers:
            for _, tower in towers:
                results += encoding(tower(folder, Drawn()), None, folder, rounds)
        else:
            with Peer(peer_python("embed", *PACKAGES), "transformers_towers.py", name, str(cores)) as peer:
                peer.ask(mel=str(_silence(folder)), lengths=[200], out=str(folder / "out.npy"))
                for kind, tower in towers:
                    read = CheckedTensors(EncoderTensors(SafetensorsFolder(folder / kind), {f"{kind}.": f"{kind}."}))
                    results += encoding(tower(folder, read), peer, folder, rounds)
        results += looking(rounds)
    report(results, arguments.json)


def _silence(folder: Path) -> Path:
    """Something to hear, so that the peer has begun when its weights are read."""
    np.save(folder / "silence.npy", np.zeros((128, 200), np.float32))
    return folder / "silence.npy"


if __name__ == "__main__":
    main()
