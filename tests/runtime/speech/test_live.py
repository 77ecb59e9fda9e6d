"""Live speech: the text only grows, and is in the end what the whole clip says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from runtime.media.audio import decode
from runtime.repository import Repository
from runtime.speech.live import LiveHearing, LiveState, LiveTranscriber, agreeing, fresh_words
from runtime.speech.vad import VoiceActivity
from runtime.speech.whisper import Whisper
from tests.made.sounds import wav
from tests.made.voice import RATE_HZ, said

RATE = 16_000
TEXT = ("The garden is green.", "Nobody knows the answer to that question.", "We will ask again in the morning.")


def timed(*words: str, from_s: float = 0.0) -> list[tuple[float, float, str]]:
    return [(from_s + at, from_s + at + 0.5, word) for at, word in enumerate(words)]


@pytest.mark.parametrize(
    ("guess", "fresh", "count"),
    [
        ("", "one two", 0),
        ("one two", "one two three", 2),
        ("One, two.", "one two three", 2),
        ("one two", "one too", 1),
        ("one two three", "one", 1),
    ],
)
def test_two_hearings_agree_up_to_the_first_other_word(guess: str, fresh: str, count: int) -> None:
    assert agreeing(timed(*guess.split()), timed(*fresh.split())) == count


def test_words_that_are_settled_are_not_said_twice() -> None:
    state = LiveState(settled_s=2.0, recent=("at", "the", "river"))
    assert fresh_words(state, [(0.0, 1.0, "at"), (1.0, 1.8, "the")]) == ()
    again = [(1.95, 2.3, "The"), (2.3, 2.6, "river,"), (2.6, 3.0, "where")]
    assert [word for _, _, word in fresh_words(state, again)] == ["where"]
    later = [(5.0, 5.3, "the"), (5.3, 5.6, "river")]
    assert len(fresh_words(state, later)) == 2


@given(st.lists(st.integers(0, 30), max_size=20))
def test_the_state_stays_small_and_loses_no_word(counts: list[int]) -> None:
    state, told, number = LiveState(), list[str](), 0
    for count in counts:
        words = [str(number + index) for index in range(count)]
        number += count
        state, settled = LiveState(
            recent=state.recent, before=state.before, guess=tuple(timed(*words, from_s=float(number)))
        ).settle(count)
        told += settled
    assert told == [str(index) for index in range(number)]
    assert list(state.recent) == told[-64:]
    assert 0 <= state.before <= len(state.recent)


Listening = Callable[..., LiveTranscriber]


@pytest.fixture(scope="module")
def listening() -> Listening:
    repository = Repository()
    return partial(LiveTranscriber, LiveHearing(Whisper.load(repository)), VoiceActivity.load(repository))


@pytest.fixture(scope="module")
def talk() -> NDArray[np.float32]:
    pause = np.zeros(int(0.6 * RATE_HZ), np.float32)
    sound = np.concatenate([piece for text in TEXT for piece in (said(text), pause)])
    return decode(wav(sound, RATE_HZ), MediaLimits())


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.mark.models
def test_live_text_only_grows_and_ends_as_the_whole_clip(listening: Listening, talk: NDArray[np.float32]) -> None:
    live, before, early = listening("en"), "", 0
    for start in range(0, len(talk), RATE // 2):
        live.push(talk[start : start + RATE // 2])
        assert live.stable.startswith(before)
        before = live.stable
        early = early or (start if before else 0)
    assert 0 < early < len(talk) / 2
    assert words(live.finish()) == words(" ".join(TEXT))
    assert live.tail == ""


@pytest.mark.models
def test_a_pause_settles_what_was_said(listening: Listening, talk: NDArray[np.float32]) -> None:
    live = listening()
    live.push(talk[: int(1.9 * RATE)])
    live.push(np.zeros(3 * RATE, np.float32))
    assert words(live.stable) == words(TEXT[0])
    assert live.tail == ""


@pytest.mark.models
@pytest.mark.parametrize("level", [0.0, 0.02])
def test_live_silence_says_nothing_and_holds_nothing(listening: Listening, level: float) -> None:
    live = listening()
    noise = (level * np.random.default_rng(1).standard_normal(60 * RATE)).astype(np.float32)
    live.push(noise)
    assert live.finish() == ""
    assert live.held_samples < RATE


@pytest.mark.models
def test_noise_that_passes_for_voice_is_let_go_before_the_window_is_full() -> None:
    hearing, state, held = LiveHearing(Whisper.load(Repository())), LiveState(language="en"), np.zeros(0, np.float32)
    hiss = (0.05 * np.random.default_rng(2).standard_normal(32 * RATE)).astype(np.float32)
    for start in range(0, len(hiss), 4 * RATE):
        held = np.concatenate([held, hiss[start : start + 4 * RATE]])
        begun_s = state.begun_s
        state, _ = hearing.hear(state, held, [(0.0, len(held) / RATE)])
        held = held[round((state.begun_s - begun_s) * RATE) :]
        assert len(held) < 25 * RATE
