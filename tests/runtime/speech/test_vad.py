"""The installed voice detector on sound of any length."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.repository import Repository
from runtime.speech.vad import STEP, VoiceActivity
from tests.made.voice import said

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def voice() -> VoiceActivity:
    return VoiceActivity.load(Repository())


def test_sound_longer_than_one_run_is_judged_as_if_it_were_one(voice: VoiceActivity) -> None:
    rng = np.random.default_rng(0)
    sound = said("The garden is green.")[::2]  # an octave up, speech enough for this
    clip = (0.001 * rng.standard_normal(2060 * STEP)).astype(np.float32)
    clip[2040 * STEP : 2040 * STEP + len(sound[: 15 * STEP])] += sound[: 15 * STEP]
    whole = voice.probabilities(clip)
    assert len(whole) == 2060
    # The detector hears forwards: the end of a clip changes nothing of what it said before.
    assert np.allclose(whole[:2050], voice.probabilities(clip[: 2050 * STEP]), atol=1e-5)
    assert whole[2040:2058].max() > 0.5


@pytest.mark.parametrize("count", [0, 1, STEP - 1, STEP, STEP + 1])
def test_each_begun_step_gets_one_probability(voice: VoiceActivity, count: int) -> None:
    found = voice.probabilities(np.zeros(count, np.float32))
    assert len(found) == -(-count // STEP)
    assert (found < 0.5).all()
    assert voice.segments(np.zeros(count, np.float32)) == []
