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
QUIZ = "Nobody knows the answer to that question, and nobody will."


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return Whisper.load(Repository())


NOISE = np.random.default_rng(0)
NOTHING = {
    "silence": np.zeros(3 * RATE, np.float32),
    "hiss": (0.1 * NOISE.standard_normal(3 * RATE)).astype(np.float32),
    "hum": tone(120, 3, RATE),
    "clicks": (NOISE.random(3 * RATE) > 0.9995).astype(np.float32),
    "loud noise": np.clip(0.5 * NOISE.standard_normal(6 * RATE), -1, 1).astype(np.float32),
    "music": np.concatenate(
        [sum(tone(hertz * 2 ** (step / 12), 0.5, RATE, 0.1) for hertz in (220, 277, 330)) for step in (0, 5, 7, 0) * 5]
    ),
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


@pytest.mark.parametrize("seconds", [9, 14, 19, 24, 29])
def test_every_window_length_hears_the_same(whisper: Whisper, sentence: NDArray[np.float32], seconds: int) -> None:
    long = np.concatenate([sentence, np.zeros(seconds * RATE - len(sentence), np.float32)])
    assert whisper.transcribe(long).text == whisper.transcribe(sentence).text


def test_time_stamps_lie_within_the_clip(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    heard = whisper.transcribe(sentence, timestamps=True, language="en")
    assert heard.text == "What is in this picture?"
    assert 0 <= heard.segments[0][0] < heard.segments[-1][1] <= len(sentence) / RATE


def test_words_are_found_where_they_were_said(whisper: Whisper) -> None:
    first, second = said("The garden is green."), said("Nobody knows the answer.")
    pause = np.zeros(2 * RATE_HZ, np.float32)
    sound = decode(wav(np.concatenate([first, pause, second]), RATE_HZ), MediaLimits())
    heard = whisper.transcribe(sound, words=True, language="en")
    told = [word for _, _, word in heard.words]
    assert " ".join(told) == "The garden is green. Nobody knows the answer."
    times = [time for start, end, _ in heard.words for time in (start, end)]
    assert times == sorted(times)
    begin_s = len(first) / RATE_HZ + 2
    assert heard.words[3][1] <= begin_s - 1.5
    assert heard.words[4][0] == pytest.approx(begin_s, abs=0.4)


def test_no_words_are_timed_where_nobody_speaks(whisper: Whisper) -> None:
    assert whisper.transcribe(NOTHING["hiss"], words=True).words == ()


def test_a_prompt_shows_how_a_name_is_written(whisper: Whisper) -> None:
    sound = decode(wav(said("My friend Kathryn lives here."), RATE_HZ), MediaLimits())
    for name in ("Katherine", "Kathryn"):
        assert name in whisper.transcribe(sound, language="en", prompt=f"A letter from {name} to {name}.").text


@pytest.mark.parametrize("seconds", [1 / RATE, 0.02, 0.3])
def test_a_moment_of_sound_says_nothing(whisper: Whisper, seconds: float) -> None:
    heard = whisper.transcribe(tone(440, seconds, RATE), timestamps=True, words=True)
    assert all(end <= 0.3 for _, end, _ in (*heard.segments, *heard.words))


def test_a_temperature_draws_other_words_the_same_way_every_time(whisper: Whisper) -> None:
    murmur = decode(wav(said(QUIZ)[: 2 * RATE_HZ], RATE_HZ), MediaLimits())
    murmur += 0.08 * np.random.default_rng(5).standard_normal(len(murmur)).astype(np.float32)
    likeliest, drawn, again = [whisper.transcribe(murmur, language="en", temperature=one).text for one in (0, 1, 1)]
    assert drawn == again
    assert drawn != likeliest


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


@pytest.mark.parametrize(
    "samples",
    [
        np.full(RATE, np.nan, np.float32),
        np.array([0.1, np.inf], np.float32),
        np.zeros(RATE, np.float64),
        np.zeros((2, RATE), np.float32),
    ],
    ids=["not numbers", "infinite", "float64", "stereo"],
)
def test_what_is_no_sound_is_refused(whisper: Whisper, samples: NDArray[np.float32]) -> None:
    with pytest.raises(InvalidInputError, match="sound is"):
        whisper.transcribe(samples)


def test_windows_that_are_heard_together_are_heard_as_alone(whisper: Whisper, sentence: NDArray[np.float32]) -> None:
    other = decode(wav(said(QUIZ), RATE_HZ), MediaLimits())
    windows = [sentence, NOTHING["silence"], other, NOTHING["hiss"], sentence[: RATE // 2]]
    together = whisper.transcribe_many(windows, timestamps=True, words=True)
    alone = [whisper.transcribe(window, timestamps=True, words=True) for window in windows]
    assert [(heard.text, heard.language) for heard in together[:4]] == [
        (heard.text, heard.language) for heard in alone[:4]
    ]
    for many, one in zip(together[:4], alone[:4], strict=True):
        assert [word for *_, word in many.words] == [word for *_, word in one.words]
        assert [time for *times, _ in many.words for time in times] == pytest.approx(
            [time for *times, _ in one.words for time in times], abs=0.1
        )


def test_functions_of_one_process_share_the_model(whisper: Whisper) -> None:
    assert Whisper.load(Repository()) is whisper
