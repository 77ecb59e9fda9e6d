"""Kokoro on a text of five sentences: time for a second of speech, and how long until the first of it is heard.

    python benchmarks/tts.py [--quick] [--peers] [--json FILE]

`--peers` adds kokoro-onnx on the published file that ours is built from, with the same symbols, voice and two threads.
Turns are interleaved and medians compared. What was said is written down by Whisper, so that no speed is bought with
words that cannot be understood.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
from _peers import Peer, peer_python
from _raw import raw_files
from _report import Measurement, report
from _speech import words, wrong
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from runtime.media.audio import decode
from runtime.media.encode import encode
from runtime.repository import Repository
from runtime.speech.kokoro import SAMPLE_RATE_HZ, Kokoro
from runtime.speech.whisper import Whisper

THREADS, VOICE, MODEL = 2, "af_heart", "kokoro-82m"
TEXT = (
    "He had promised to bring the books back before the end of the week. "
    "Nobody in the village could remember such a cold winter. "
    "She opened the window, looked at the garden and smiled at the birds. "
    "Please send the letter to the office on the second floor. "
    "The river was so wide that nobody could see the other side."
)

Said = tuple[NDArray[np.float32], float, float]
"""Samples at 24 kHz, seconds until the first of them were there, seconds until all were."""


def ours(model: Kokoro, *, early: bool) -> Callable[[], Said]:
    """Our runtime: text to sound, reading included."""

    def say() -> Said:
        started = time.perf_counter()
        sounds, first = [], 0.0
        for piece in model.plan(TEXT, VOICE, early=early):
            sounds.append(model.say(piece, VOICE))
            first = first or time.perf_counter() - started
        seconds = time.perf_counter() - started
        return np.concatenate(sounds), first if early else seconds, seconds

    return say


def theirs(peer: Peer, symbols: str, folder: Path) -> Callable[[], Said]:
    """kokoro-onnx: symbols to sound, all at once."""

    def say() -> Said:
        file = folder / "said.npy"
        seconds = peer.ask(symbols=symbols, voice=VOICE, file=str(file))["seconds"]
        return np.load(file), seconds, seconds

    return say


def opened(repository: Repository, folder: Path) -> Peer:
    """The peer on the published model and our voice in the form that it takes."""
    raw_files(repository, MODEL, folder)
    style = np.fromfile(folder / "voices" / f"{VOICE}.bin", np.float32).reshape(-1, 1, 256)
    np.savez(folder / "voices.npz", **{VOICE: style})
    paths = (str(folder / name) for name in ("model.onnx", "voices.npz", "vocab.json"))
    return Peer(peer_python("kokoro-onnx", ["kokoro-onnx"]), "kokoro_onnx_tts.py", *paths, str(THREADS))


def understood(whisper: Whisper, sound: NDArray[np.float32]) -> int:
    """How many words of the text are heard."""
    samples = decode(encode(sound, SAMPLE_RATE_HZ, "wav")[0], MediaLimits())
    heard = whisper.transcribe(samples[: whisper.window_samples], language="en").text
    return len(words(TEXT)) - wrong(words(TEXT), words(heard))


def _measure(quick: bool, peers: bool) -> list[Measurement]:
    repository = Repository()
    repository.pull(MODEL)
    model = Kokoro.load(repository, MODEL, threads=THREADS)
    model.say(model.plan("ready", VOICE)[0], VOICE)  # loads the dictionary, and the voice
    speakers = {"whole": ours(model, early=False), "early": ours(model, early=True)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if peers:
            symbols = " ".join(model.plan(TEXT, VOICE))
            peer = stack.enter_context(opened(repository, Path(name)))
            speakers["kokoro-onnx"] = theirs(peer, symbols, Path(name))
        turns: dict[str, list[Said]] = {name: [] for name in speakers}
        for _ in range(1 if quick else 4):
            for name, say in speakers.items():
                time.sleep(0.3)  # a peer's threads spin for a while after their work
                turns[name].append(say())
    return _results(turns, Whisper.load(repository, threads=THREADS))


def _results(turns: dict[str, list[Said]], whisper: Whisper) -> list[Measurement]:
    factor = {name: median(said[2] / (len(said[0]) / SAMPLE_RATE_HZ) for said in made) for name, made in turns.items()}
    first = {name: median(said[1] for said in made) for name, made in turns.items()}
    heard = {name: understood(whisper, made[-1][0]) for name, made in turns.items()}
    peer = "kokoro-onnx" if "kokoro-onnx" in turns else None
    ratio = None if peer is None else factor["whole"] / factor[peer]
    return [
        Measurement(
            name="whole text: time / length",
            value=factor["whole"],
            unit="x",
            peer=peer,
            peer_value=None if peer is None else factor[peer],
            ratio=ratio,
        ),
        Measurement(
            name="first sound of five sentences",
            value=first["early"],
            unit="s",
            peer="whole text",
            peer_value=first["whole"],
            ratio=first["early"] / first["whole"],
        ),
        Measurement(
            name="said early: time / length",
            value=factor["early"],
            unit="x",
            peer="whole text",
            peer_value=factor["whole"],
            ratio=factor["early"] / factor["whole"],
        ),
        *(_understood(name, heard, peer) for name in ("whole", "early")),
    ]


def _understood(name: str, heard: dict[str, int], peer: str | None) -> Measurement:
    return Measurement(
        name=f"{name}: words understood of {len(words(TEXT))}",
        value=heard[name],
        unit="",
        peer=peer,
        peer_value=None if peer is None else heard[peer],
    )


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn")
    parser.add_argument("--peers", action="store_true", help="kokoro-onnx, too")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    report(_measure(arguments.quick, arguments.peers), arguments.json)


if __name__ == "__main__":
    main()
