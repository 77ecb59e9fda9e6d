"""Speech in the project's own voice."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from runtime.repository import Repository
from runtime.speech.kokoro import Kokoro

RATE_HZ = 24_000


@lru_cache(maxsize=1)
def kokoro() -> Kokoro:
    """The installed voice model, loaded once for all tests."""
    return Kokoro.load(Repository())


@lru_cache(maxsize=16)
def said(text: str, voice: str = "af_heart", speed: float = 1.0) -> NDArray[np.float32]:
    """The text as sound, float32 (sample,), 24 kHz."""
    model = kokoro()
    return np.concatenate([model.say(piece, voice, speed) for piece in model.plan(text, voice)])
