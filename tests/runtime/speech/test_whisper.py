"""The installed Whisper on sound without speech and on our own voice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from bus.errors import InvalidInputError
from runtime.media.audio import decode
from runtime.repository import Repository
from runtime.speech.whisper import Whisper
from tests.made.sounds import tone, wav
from tests.made.voice import RATE_HZ, said

pytestmark = pytest.mark.models
RATE = 16_000


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return Whisper.load(Repository())


NOISE = np.random.default_rng(0)
NOTHING = {
    "silence": np.zeros(3 * RATE, np.float32),
    "hiss": (0.1 * NOISE.standard_normal(3 * RATE)).astype(np.float32),
    "hum": tone(120, 3, RATE),
    "clicks": (NOISE.random(3 * RATE) > 0.9995).astype(np.float32),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_invented_where_nobody_speaks(whisper: Whisper, name: str) -> None:
    heard = whisper.transcribe(NOTHING[name])
    assert (heard.text, heard.segments) == ("", ())


@pytest.fixture(scope="module")
def sentence() -> NDArray[np.float32]:
    return decode(wav(said("What is in this picture?"), RATE_HZ), MediaLimits())


def test_words_and_language_are_heard(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    heard = whisper.transcribe(sentence)
    assert (heard.text, heard.language) == ("What is in this picture?", "en")
    assert heard.segments == ((0.0, len(sentence) / RATE, heard.text),)


def test_both_window_lengths_hear_the_same(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    long = np.concatenate([sentence, np.zeros(14 * RATE, np.float32)])
    assert whisper.transcribe(long).text == whisper.transcribe(sentence).text


def test_time_stamps_lie_within_the_clip(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    heard = whisper.transcribe(sentence, timestamps=True, language="en")
    assert heard.text == "What is in this picture?"
    assert 0 <= heard.segments[0][0] < heard.segments[-1][1] <= len(sentence) / RATE


def test_a_cancelled_run_stops_before_the_next_token(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert 0 < len(whisper.transcribe(sentence, cancelled=cancelled).text) < len("What is in this picture?")


def test_more_than_a_window_is_refused(whisper: Whisper) -> None:
    with pytest.raises(InvalidInputError, match="480000"):
        whisper.transcribe(np.zeros(31 * RATE, np.float32))
