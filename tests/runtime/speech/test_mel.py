"""Log-mel frames against the formulas, computed term by term."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from transformers import WhisperFeatureExtractor

from runtime.speech.mel import log_mel
from tests.made.sounds import tone

RATE = 16_000


def direct_power(samples: NDArray[Any], frame: int) -> NDArray[Any]:
    """|DFT|² of the Hann-windowed 25 ms around a frame, by the sum that defines it."""
    mirrored = np.pad(samples.astype(np.float64), 200, mode="reflect")
    piece = mirrored[frame * 160 : frame * 160 + 400]
    n = np.arange(400)
    windowed = piece * (0.5 - 0.5 * np.cos(2 * np.pi * n / 400))
    matrix = np.exp(-2j * np.pi * np.outer(np.arange(201), n) / 400)
    return np.asarray(np.abs(matrix @ windowed) ** 2)


def slaney(hertz: float) -> float:
    """Slaney's Auditory Toolbox: 66⅔ Hz a mel below 1 kHz, 27 mels per factor of 6.4 above."""
    return hertz / (200 / 3) if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)


def direct_filter(index: int, mels: int) -> NDArray[Any]:
    top = slaney(8000.0)
    hertz_of = np.linspace(0, 8000, 800_001)
    grid = np.array([slaney(value) for value in hertz_of[::100]])
    low, centre, high = (np.interp(top * (index + k) / (mels + 1), grid, hertz_of[::100]) for k in range(3))
    out = np.zeros(201)
    for k in range(201):
        hertz = k * 40.0
        if low < hertz <= centre:
            out[k] = (hertz - low) / (centre - low)
        elif centre < hertz < high:
            out[k] = (high - hertz) / (high - centre)
    return out * 2 / (high - low)


@pytest.fixture(scope="module")
def clip() -> NDArray[Any]:
    rng = np.random.default_rng(4)
    noise = 0.1 * rng.standard_normal(RATE).astype(np.float32)
    return (tone(900, 1.0, RATE, 0.4) + noise).astype(np.float32)


def test_values_are_those_of_the_definition(clip: NDArray[Any]) -> None:
    mel = log_mel(clip, frames=100)
    assert mel.dtype == np.float32
    assert mel.shape == (80, 100)
    filters = np.stack([direct_filter(index, 80) for index in range(80)])
    frames = [0, 1, 2, 37, 98, 99]
    logs = np.log10(np.maximum(np.stack([filters @ direct_power(clip, f) for f in frames], axis=1), 1e-10))
    peak = 4 * mel.max() - 4
    expected = (np.maximum(logs, peak - 8) + 4) / 4
    assert np.abs(mel[:, frames] - expected).max() < 2e-3


def test_the_strongest_band_is_that_of_the_tone() -> None:
    mel = log_mel(tone(2000, 1.0, RATE), frames=100)
    centres = [slaney(8000.0) * (index + 1) / 81 for index in range(80)]
    assert abs(centres[int(mel.mean(axis=1).argmax())] - slaney(2000)) < slaney(8000.0) / 81


def test_a_short_clip_is_padded_with_silence(clip: NDArray[Any]) -> None:
    padded = np.concatenate([clip, np.zeros(2 * RATE, np.float32)])
    assert np.array_equal(log_mel(clip, frames=300), log_mel(padded, frames=300))
    assert np.ptp(log_mel(clip, frames=300)[:, 150:]) == 0


def test_nothing_lies_further_below_the_peak_than_eight_powers_of_ten() -> None:
    mel = log_mel(tone(440, 0.5, RATE), frames=200)
    assert mel.max() - mel.min() == pytest.approx(2.0)


def test_silence_is_flat_and_finite() -> None:
    mel = log_mel(np.zeros(RATE, np.float32), frames=100)
    assert np.isfinite(mel).all()
    assert np.ptp(mel) == 0


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("seconds", [1 / RATE, 0.9, 7.3, 30.0, 31.5])
def test_frames_are_the_reference_implementations_within_a_ten_thousandth(seconds: float, mels: int) -> None:
    rng = np.random.default_rng(7)
    count = round(seconds * RATE)
    samples = (tone(700, 40.0, RATE, 0.3)[:count] + 0.05 * rng.standard_normal(count)).astype(np.float32)
    make: Any = WhisperFeatureExtractor
    reference = make(feature_size=mels)
    expected = reference(samples, sampling_rate=RATE, return_tensors="np")["input_features"][0]
    assert np.abs(log_mel(samples[: 30 * RATE], frames=3000, mels=mels) - expected).max() < 1e-4


def test_a_long_clip_is_scaled_by_its_own_peak_wherever_that_is() -> None:
    samples = np.concatenate([tone(700, 70.0, RATE, 0.01), tone(300, 1.0, RATE, 0.9), tone(700, 5.0, RATE, 0.01)])
    make: Any = WhisperFeatureExtractor
    expected = make(feature_size=80, chunk_length=76)(samples, sampling_rate=RATE, return_tensors="np")
    found = log_mel(samples, frames=7600)
    assert np.abs(found - expected["input_features"][0]).max() < 1e-4
