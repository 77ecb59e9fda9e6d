"""How much there is in pictures, films and sounds of which everybody sees or hears how much there is."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from runtime.multimodal.budget import tokens_to_keep
from runtime.multimodal.complexity import audio_complexity, image_complexity, video_complexity
from runtime.multimodal.family import Detail


def blank(colour: str = "white", size: tuple[int, int] = (320, 240)) -> Image.Image:
    return Image.new("RGB", size, colour)


def noise(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (240, 320, 3), np.uint8))


def drawing(shapes: int) -> Image.Image:
    picture, random = blank(), np.random.default_rng(1)
    draw = ImageDraw.Draw(picture)
    for _ in range(shapes):
        x, y = random.integers(0, 300, 2)
        draw.rectangle((x, y, x + 25, y + 25), fill=tuple(random.integers(0, 256, 3).tolist()))
    return picture


def test_more_to_see_is_more_complex() -> None:
    found = [image_complexity(one) for one in (blank(), drawing(3), drawing(30), drawing(300), noise())]
    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] > 0.8


def test_a_smooth_sky_is_not_complex_for_all_its_shades() -> None:
    sky = Image.fromarray(np.tile(np.linspace(0, 255, 240).astype(np.uint8)[:, None, None], (1, 320, 3)))
    assert image_complexity(sky) == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 2)])
def test_a_sliver_has_a_complexity_too(size: tuple[int, int]) -> None:
    assert image_complexity(blank(size=size)) == 0


def test_a_still_film_has_none_and_a_cut_every_frame_has_all() -> None:
    assert video_complexity([drawing(30)] * 4) == 0
    assert video_complexity([blank()]) == 0
    assert video_complexity([blank("white"), blank("black")] * 3) == 1
    assert video_complexity([drawing(30), drawing(30), drawing(31)]) < 0.1


def test_frames_of_another_shape_are_another_scene() -> None:
    assert video_complexity([blank(), blank(size=(240, 320))]) == 1


def test_sound_counts_for_as_long_as_it_lasts() -> None:
    tone = (0.3 * np.sin(np.arange(16_000) * 0.2)).astype(np.float32)
    silence = np.zeros(48_000, np.float32)
    assert audio_complexity(silence) == 0
    assert audio_complexity(tone) == 1
    assert audio_complexity(np.concatenate([silence, tone])) == pytest.approx(0.25, abs=0.01)
    assert audio_complexity(tone * np.float32(1e-3)) == 0  # below -50 dB
    assert audio_complexity(tone[:100]) == 0


@pytest.mark.parametrize(
    ("complexity", "detail", "kept"),
    [
        (0.0, Detail(level="high"), 100),
        (0.0, Detail(level="auto"), 100),
        (0.0, Detail(level="auto", max_tokens=40), 40),
        (1.0, Detail(level="auto", max_tokens=400), 100),
        (0.0, Detail(level="low"), 25),
        (0.5, Detail(level="low"), 63),
        (1.0, Detail(level="low"), 100),
        (0.5, Detail(level="low", max_tokens=10), 10),
    ],
)
def test_a_piece_keeps_what_its_detail_and_its_content_say(complexity: float, detail: Detail, kept: int) -> None:
    assert tokens_to_keep(100, complexity, detail) == kept
