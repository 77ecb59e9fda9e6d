"""How much of a picture or a film Qwen2-VL looks at: sizes, moments, budgets of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from bus.errors import LimitExceededError, ModelUnsupportedError
from runtime.multimodal.families.qwen_vl import QwenVl
from runtime.multimodal.family import Detail, Film
from runtime.multimodal.smart_size import PixelBudget, smart_size
from tests.runtime.multimodal.drawn import film

TOKEN = 28
PLAIN = Detail()
PARAMETERS: dict[str, Any] = {
    "encoders": {"image": "vision.onnx", "video": "vision.onnx"},
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
    "patch": 14, "frames": 2, "merge": 2, "window": 4, "resample": 3, "ticks_per_second": None,
    "most_tokens": 96_000,
    "image": {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280},
    "video": {
        "min_pixels": 128 * 28 * 28, "max_pixels": 768 * 28 * 28, "frames_per_second": 2.0, "min_frames": 4,
        "max_frames": 768, "tokens": 128_000},
}  # fmt: skip


def test_time_in_positions_follows_the_clock_of_the_film() -> None:
    family = QwenVl({**PARAMETERS, "ticks_per_second": 4})
    prepared = family.video(film(24, 8.0), PLAIN)
    assert prepared.seconds_per_step == pytest.approx(2 / 3)
    step = prepared.positions[0].reshape(12, -1)[:, 0]
    np.testing.assert_array_equal(step, [int(index * 4 * 2 / 3 + 1e-5) for index in range(12)])


@pytest.mark.parametrize("shape", [(4000, 3000), (3000, 40), (20, 3), (1, 1)])
@pytest.mark.parametrize("tokens", [1, 7, 50, 300, 5000])
def test_a_picture_takes_no_more_tokens_than_it_may(shape: tuple[int, int], tokens: int) -> None:
    prepared = QwenVl(PARAMETERS).image(Image.new("RGB", shape), Detail(max_tokens=tokens))
    assert prepared.tokens <= tokens


@pytest.mark.parametrize(("seconds", "tokens"), [(3, 100), (60, 900), (600, 3000), (600, 100)])
def test_a_film_takes_no_more_tokens_than_it_may(seconds: float, tokens: int) -> None:
    family, detail = QwenVl(PARAMETERS), Detail(max_tokens=tokens)
    moments = family.frames(seconds, 25.0, detail)
    frames = (Image.new("RGB", (320, 180)) for _ in moments)
    assert family.video(Film(frames, moments, seconds), detail).tokens <= tokens


def test_low_detail_costs_less() -> None:
    family, picture, low = QwenVl(PARAMETERS), Image.new("RGB", (1600, 1200)), Detail(level="low")
    assert family.image(picture, low).tokens <= 256 < family.image(picture, PLAIN).tokens
    assert len(family.frames(20, 25, low)) < len(family.frames(20, 25, PLAIN))


@pytest.mark.parametrize("size", [(4000, 3000), (3000, 40), (40, 3000), (20, 3), (1, 1), (757, 1291), (28, 28)])
@pytest.mark.parametrize("budget", [(56 * 56, 28 * 28 * 1280), (100_352, 602_112), (3136, 12_845_056)])
def test_sizes_are_those_of_the_reference(size: tuple[int, int], budget: tuple[int, int]) -> None:
    height, width = smart_resize(size[1], size[0], TOKEN, *budget)
    assert smart_size(*size, TOKEN, PixelBudget(*budget)) == (width, height)


def test_a_thread_of_a_picture_is_refused_with_the_limit() -> None:
    with pytest.raises(LimitExceededError, match=r"300 × 1 pixels.* 200 times"):
        QwenVl(PARAMETERS).image(Image.new("RGB", (300, 1)), PLAIN)


def test_frames_are_taken_as_the_reference_takes_them() -> None:
    family = QwenVl(PARAMETERS)
    # Half a second at 24 frames a second has room for the four frames that are the fewest; 3.1 seconds for six.
    assert [int(moment * 24) for moment in family.frames(0.5, 24, PLAIN)] == [0, 3, 6, 9]
    assert [int(moment * 10) for moment in family.frames(3.1, 10, PLAIN)] == [0, 5, 10, 15, 20, 25]
    assert len(family.frames(10_000, 25, PLAIN)) == 768
    assert family.frames(0.04, 25, PLAIN) == [0.02]


def test_sound_is_refused() -> None:
    with pytest.raises(ModelUnsupportedError, match="no audio"):
        QwenVl(PARAMETERS).audio(np.zeros(16_000, np.float32), PLAIN)


def test_a_picture_and_a_film_are_no_more_than_the_model_has_room_for() -> None:
    family = QwenVl({**PARAMETERS, "most_tokens": 1000, "image": {"min_pixels": 3136, "max_pixels": 12_845_056}})
    assert 900 < family.image(Image.new("RGB", (4000, 3000)), PLAIN).tokens <= 1000
    moments = family.frames(600, 25.0, PLAIN)
    shown = Film((Image.new("RGB", (1920, 1080)) for _ in moments), moments, 600)
    assert 700 < family.video(shown, PLAIN).tokens <= 1000
