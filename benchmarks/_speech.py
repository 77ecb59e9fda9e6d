"""Speech for benchmarks: said by our own voices, or recordings with their words beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from runtime.media.audio import decode
from runtime.media.encode import encode
from runtime.repository import Repository
from runtime.speech.kokoro import SAMPLE_RATE_HZ, Kokoro

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and then it takes a nap in the warm sun.",
    "He had promised to bring the books back before the end of the week.",
    "Please send the letter to the office on the second floor before noon.",
    "My brother has lived in a small town near the mountains for years.",
    "The river was so wide that nobody could see the other side of it from here.",
    "She opened the window, looked at the garden and smiled at the birds.",
)
VOICES = ("af_heart", "am_michael", "bf_emma", "bm_george")


@dataclass(frozen=True)
class Clip:
    """What was said, and its sound, float32 (sample,), 16 kHz."""

    text: str
    samples: NDArray[np.float32]

    @property
    def seconds(self) -> float:
        return len(self.samples) / 16_000


def spoken(repository: Repository, count: int) -> list[Clip]:
    """Sentences of three to seven seconds in several voices."""
    model = Kokoro.load(repository, threads=2)
    clips = []
    for index, text in enumerate(SENTENCES[:count]):
        voice = VOICES[index % len(VOICES)]
        sound = np.concatenate([model.say(piece, voice) for piece in model.plan(text, voice)])
        clips.append(Clip(text, decode(encode(sound, SAMPLE_RATE_HZ, "wav")[0], MediaLimits())))
    return clips


def recorded(folder: Path) -> list[Clip]:
    """Every WAV file that has a text file of its name beside it."""
    paths = (path for path in sorted(folder.glob("*.wav")) if path.with_suffix(".txt").exists())
    return [
        Clip(path.with_suffix(".txt").read_text(encoding="utf-8"), decode(path.read_bytes(), MediaLimits()))
        for path in paths
    ]


def words(text: str) -> list[str]:
    """In lower case, without marks."""
    return re.findall(r"[a-z0-9']+", text.lower())


def wrong(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words to change, add or leave out to make one of the other (Levenshtein's distance)."""
    row = list(range(len(heard) + 1))
    for place, word in enumerate(said, 1):
        before, row[0] = row[0], place
        for index, other in enumerate(heard, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (word != other))
    return row[-1]
