"""Long sound cut where nobody speaks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.speech.vad import VoiceConfig, voiced_segments
from runtime.speech.windows import speech_windows

RATE = 1000


def silence(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.zeros(int(seconds * RATE), np.float32)


def test_nobody_speaks_gives_no_window() -> None:
    assert speech_windows([], silence(10), 30, RATE) == []


def test_short_stretches_share_a_window_with_a_margin() -> None:
    assert speech_windows([(2, 4), (6, 9)], silence(20), 30, RATE) == [(1.5, 9.5)]


def test_what_does_not_fit_begins_the_next_window() -> None:
    windows = speech_windows([(0, 10), (12, 20), (22, 40)], silence(45), 30, RATE)
    assert windows == [(0, 20.5), (21.5, 40.5)]


def test_speech_without_a_pause_is_cut_at_its_quietest_moment() -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal(50 * RATE).astype(np.float32)
    samples[26_300:26_500] *= 0.01
    windows = speech_windows([(0, 50)], samples, 30, RATE)
    assert windows[0][1] == pytest.approx(26.4, abs=0.11)
    assert windows[1][0] == pytest.approx(windows[0][1])


@given(
    st.lists(st.tuples(st.floats(0.05, 20), st.floats(0.3, 80)), max_size=8),
    st.floats(0, 5),
)
def test_windows_hold_all_speech_in_order_and_never_overlap(pairs: list[tuple[float, float]], tail_s: float) -> None:
    voice, at_s = [], 0.0
    for pause_s, length_s in pairs:
        voice.append((at_s + pause_s, at_s + pause_s + length_s))
        at_s += pause_s + length_s
    windows = speech_windows(voice, silence(at_s + tail_s + 0.001), 30, RATE)
    for start_s, end_s in windows:
        assert 0 <= start_s < end_s <= start_s + 30 + 1e-6
    for left, right in pairwise(windows):
        assert left[1] <= right[0] + 1e-6
    for start_s, end_s in voice:
        covered = sum(max(0.0, min(end_s, window[1]) - max(start_s, window[0])) for window in windows)
        assert covered == pytest.approx(end_s - start_s, abs=0.01)


STEP_S = 0.032


def steps(*parts: tuple[int, float]) -> list[float]:
    return [probability for count, probability in parts for _ in range(count)]


def test_voice_begins_high_and_goes_on_low() -> None:
    probabilities = steps((10, 0.1), (10, 0.9), (10, 0.4), (10, 0.1))
    (segment,) = voiced_segments(probabilities, 40 * STEP_S, VoiceConfig(padding_s=0))
    assert segment == pytest.approx((10 * STEP_S, 30 * STEP_S))


def test_a_murmur_alone_is_no_voice() -> None:
    assert voiced_segments(steps((40, 0.45)), 40 * STEP_S, VoiceConfig()) == []


def test_short_pauses_are_bridged_and_short_sounds_dropped() -> None:
    probabilities = steps((10, 0.9), (2, 0.0), (10, 0.9), (20, 0.0), (3, 0.9), (20, 0.0))
    (segment,) = voiced_segments(probabilities, 65 * STEP_S, VoiceConfig(padding_s=0))
    assert segment == pytest.approx((0, 22 * STEP_S))


def test_voice_at_the_very_end_ends_with_the_clip() -> None:
    (segment,) = voiced_segments(steps((5, 0.0), (20, 0.9)), 24.5 * STEP_S, VoiceConfig())
    assert segment == pytest.approx((5 * STEP_S - 0.03, 24.5 * STEP_S))
