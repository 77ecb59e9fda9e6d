"""Whisper-base on clips of three to seven seconds, and on a whole window of half a minute.

    python benchmarks/asr.py [--quick] [--peers] [--clips FOLDER] [--json FILE]

The clips are said by our own voices; `--clips` adds recordings (`name.wav` with its words in `name.txt`). `--peers`
adds faster-whisper on the very weights that ours were built from: int8, two threads, greedy, English known, no time
stamps, as ours. Clip by clip in turns; medians compared. Faster-whisper always hears half a minute; ours a window in
steps of five seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
from _peers import Peer, peer_python
from _raw import raw_files
from _report import Measurement, report
from _speech import Clip, recorded, spoken, words, wrong

from runtime.repository import Repository
from runtime.speech.whisper import Whisper

THREADS, GOAL = 2, 0.6
MODEL = "whisper-base"

Listener = Callable[[Clip, Path], tuple[str, float]]
"""A clip, and the file that it is in, to its text and the seconds that it took."""


def ours(model: Whisper) -> Listener:
    """Our runtime, in this process."""

    def listen(clip: Clip, path: Path) -> tuple[str, float]:
        started = time.perf_counter()
        heard = model.transcribe(clip.samples, language="en")
        return heard.text, time.perf_counter() - started

    return listen


def theirs(peer: Peer) -> Listener:
    """A peer, in its own process."""

    def listen(clip: Clip, path: Path) -> tuple[str, float]:
        answer = peer.ask(clip=str(path))
        return answer["text"], answer["seconds"]

    return listen


def measured(
    listeners: dict[str, Listener], clips: Sequence[Clip], folder: Path, rounds: int
) -> dict[str, tuple[float, int]]:
    """Time as a share of the sound's length, and words wrong in all clips, by listener."""
    shares: dict[str, list[float]] = {name: [] for name in listeners}
    texts: dict[str, dict[int, str]] = {name: {} for name in listeners}
    for turn in range(rounds + 1):
        for index, clip in enumerate(clips):
            path = folder / f"{index}.npy"
            np.save(path, clip.samples)
            for name, listen in listeners.items():
                time.sleep(0.3)  # a peer's threads spin for a while after their work
                texts[name][index], seconds = listen(clip, path)
                if turn:  # the first round warms up
                    shares[name].append(seconds / clip.seconds)
    errors = {
        name: sum(wrong(words(clip.text), words(heard[index])) for index, clip in enumerate(clips))
        for name, heard in texts.items()
    }
    return {name: (median(shares[name]), errors[name]) for name in listeners}


def compared(name: str, found: dict[str, tuple[float, int]], total: int, goal: float | None) -> list[Measurement]:
    """Rows of a report: time, and words right."""
    (own, own_wrong), (other, other_wrong) = found["ours"], found.get("faster-whisper", (None, None))
    ratio = None if other is None else own / other
    peer = None if other is None else "faster-whisper, int8"
    return [
        Measurement(
            name=f"{name}: time / length",
            value=own,
            unit="x",
            peer=peer,
            peer_value=other,
            ratio=ratio,
            goal=None if goal is None or ratio is None else f"<= {goal}x",
            ok=None if goal is None or ratio is None else ratio <= goal,
        ),
        Measurement(
            name=f"{name}: words right of {total}",
            value=total - own_wrong,
            unit="",
            peer=peer,
            peer_value=None if other_wrong is None else total - other_wrong,
        ),
    ]


def joined(clips: Sequence[Clip], most: int) -> Clip:
    """As many clips as fit into a window, one after the other."""
    text, samples = "", np.zeros(0, np.float32)
    for clip in clips:
        if len(samples) + len(clip.samples) <= most:
            text, samples = f"{text} {clip.text}", np.concatenate([samples, clip.samples])
    return Clip(text, samples)


def _measure(quick: bool, peers: bool, clips_folder: str | None) -> list[Measurement]:
    repository = Repository()
    repository.pull(MODEL)
    clips = spoken(repository, 3 if quick else 6)
    if clips_folder is not None:
        clips += recorded(Path(clips_folder))
    model = Whisper.load(repository, MODEL, threads=THREADS)
    listeners = {"ours": ours(model)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        if peers:
            raw = raw_files(repository, MODEL, folder / "model", {"tokenizer.json": "vocabulary.json"})
            python = peer_python("faster-whisper", ["faster-whisper"])
            peer = Peer(python, "faster_whisper_asr.py", str(raw), str(THREADS))
            listeners["faster-whisper"] = theirs(stack.enter_context(peer))
        found = measured(listeners, clips, folder, 1 if quick else 5)
        results = compared("clips of 3 to 7 s", found, sum(len(words(clip.text)) for clip in clips), GOAL)
        if not quick:
            window = joined(clips, model.window_samples)
            found = measured(listeners, [window], folder, 3)
            results += compared(f"one window of {window.seconds:.0f} s", found, len(words(window.text)), None)
    return results


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clips and rounds")
    parser.add_argument("--peers", action="store_true", help="faster-whisper, too")
    parser.add_argument("--clips", metavar="FOLDER", help="recordings with their words")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    report(_measure(arguments.quick, arguments.peers, arguments.clips), arguments.json)


if __name__ == "__main__":
    main()
