"""The demo's spoken question."""

from __future__ import annotations

import io
import wave
from functools import cache

import numpy as np

from runtime.repository import Repository
from runtime.speech.kokoro import SAMPLE_RATE_HZ, Kokoro

TEXT = "What is in this picture?"


@cache
def spoken_question() -> bytes:
    """A WAV file of 16 bits, mono, said by our own text-to-speech."""
    model, voice = Kokoro.load(Repository()), "af_heart"
    sound = np.concatenate([model.say(piece, voice) for piece in model.plan(TEXT, voice)])
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        written.writeframes((np.clip(sound, -1, 1) * 32_767).astype("<i2").tobytes())
    return file.getvalue()
