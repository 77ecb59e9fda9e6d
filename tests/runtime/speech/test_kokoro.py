"""The installed Kokoro, before it says anything: how a text is cut into pieces."""

from __future__ import annotations

import pytest

from runtime.repository import Repository
from runtime.speech.kokoro import Kokoro

pytestmark = pytest.mark.models
BREATHLESS = "the river runs along a valley of stones and " * 40


@pytest.fixture(scope="module")
def kokoro() -> Kokoro:
    return Kokoro.load(Repository())


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("speed", [0.25, 0.5, 1.0, 4.0])
def test_no_piece_is_longer_than_fifteen_seconds_of_sound_and_none_is_lost(
    kokoro: Kokoro, speed: float, early: bool
) -> None:
    planned = kokoro.plan(BREATHLESS, "af_heart", speed=speed, early=early)
    most = 255 * min(1.0, speed)  # the voice says about sixteen symbols a second
    assert max(len(piece) for piece in planned) <= most
    whole = kokoro.plan(BREATHLESS, "af_heart")
    assert "".join(planned).replace(" ", "") == "".join(whole).replace(" ", "")


def test_a_long_text_without_marks_is_heard_early(kokoro: Kokoro) -> None:
    assert len(kokoro.plan(BREATHLESS, "af_heart", early=True)[0]) <= 96
