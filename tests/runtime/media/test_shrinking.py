"""JPEGs that are shrunk while they are decoded: how far, how near to the whole picture, and in how much memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bus.contracts import MediaLimits
from runtime.media.images import decode, shrink_factor
from tests.made.pictures import saved
from tests.runtime.multimodal.drawn import scene

LIMITS = MediaLimits()
SIDE = 96
BICUBIC = Image.Resampling.BICUBIC


def photo(width: int, height: int) -> Image.Image:
    """Soft as a lens, with the noise of a sensor."""
    random = np.random.default_rng(1)
    soft = np.asarray(scene(width // 3, height // 3).resize((width, height), BICUBIC), np.float32)
    return Image.fromarray((soft + random.normal(0, 3, (height, width, 1))).clip(0, 255).astype(np.uint8))


def squares(width: int, height: int) -> Image.Image:
    """Hard edges between shades of grey."""
    random, image = np.random.default_rng(2), Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for left, top, right, bottom, shade in zip(*random.integers(0, 256, (5, 60)), strict=True):
        box = [min(left, right) * width // 256, min(top, bottom) * height // 256]
        box += [max(left, right) * width // 256, max(top, bottom) * height // 256]
        draw.rectangle(box, fill=(int(shade),) * 3)
    return image


def made(data: bytes, side: int, **options: Any) -> tuple[NDArray[np.int64], int]:
    """What becomes of a picture, and by how much it was shrunk."""
    (picture,) = decode(data, LIMITS, **options)
    resized = picture.image.resize((side, side), BICUBIC)
    return np.asarray(resized, np.int64), picture.width // picture.image.width


@pytest.mark.parametrize(
    ("size", "wanted", "factor"),
    [
        ((4000, 3000), (384, 384), 2),
        ((4032, 3024), (384, 384), 2),
        ((8640, 5760), (384, 384), 8),
        ((3000, 4000), (100, 100), 8),
        ((4000, 3000), (400, 400), 2),
        ((4000, 3000), (401, 401), 1),
        ((4001, 3000), (384, 384), 1),
        ((4002, 3002), (100, 100), 2),
        ((8640, 5760), (2304, 1536), 2),
        ((8639, 5759), (2304, 1536), 2),
        ((400, 300), (384, 384), 1),
        ((4000, 3000), (5000, 3750), 1),
    ],
)
def test_a_picture_is_shrunk_as_far_as_what_is_made_of_it_stays_the_same(
    size: tuple[int, int], wanted: tuple[int, int], factor: int
) -> None:
    assert shrink_factor(size, wanted) == factor


@pytest.mark.parametrize(("factor", "draw", "most"), [(2, photo, 3), (4, photo, 3), (2, squares, 6), (4, squares, 6)])
def test_values_are_those_of_the_whole_picture_within_a_hundredth(factor: int, draw: Any, most: int) -> None:
    data = saved(draw(SIDE * 4 * factor, SIDE * 4 * factor), "JPEG", quality=90)
    whole, one = made(data, SIDE)
    found, shrunk = made(data, SIDE, resolution=lambda width, height: (SIDE, SIDE))
    assert (one, shrunk) == (1, factor)
    deviation = np.abs(found - whole)
    assert deviation.max() <= most
    assert deviation.mean() <= 0.3


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_picture_on_its_side_is_measured_as_it_is_seen(orientation: int) -> None:
    stored, exif = photo(1600, 800), Image.Exif()
    exif[0x0112] = orientation
    asked: list[tuple[int, int]] = []

    def resolution(width: int, height: int) -> tuple[int, int]:
        asked.append((width, height))
        return width // 8, height // 8

    (picture,) = decode(saved(stored, "JPEG", exif=exif), LIMITS, resolution=resolution)
    upright = (800, 1600) if orientation > 4 else (1600, 800)
    assert asked == [upright] == [(picture.width, picture.height)]
    assert picture.image.size == (upright[0] // 2, upright[1] // 2)


def test_only_jpegs_are_shrunk() -> None:
    assert made(saved(photo(800, 800), "PNG"), SIDE, resolution=lambda width, height: (SIDE, SIDE))[1] == 1


PEAK = """
import re, sys
from bus.contracts import MediaLimits
from runtime.media.images import decode
from runtime.multimodal.family import Detail
from runtime.multimodal.families.{module} import {name}

parameters = {parameters!r}
family = {name}(parameters)
data = open(sys.argv[1], "rb").read()
looked = lambda width, height: family.resolution(width, height, Detail())
(picture,) = decode(data, MediaLimits(), resolution=looked)
assert picture.width * picture.height > 49_000_000
prepared = family.image(picture.image, Detail())
assert prepared.tokens > 100
# What getrusage tells holds the peak of the process that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""
SMOLVLM = {
    "encoders": {"image": "vision.onnx"}, "tile": 512, "side": 8, "seen": 1.0, "longest_edge": 2048, "splitting": True,
    "resample": 1, "image_token": "<image>", "around": "<fake>", "whole": "<global-img>",
}  # fmt: skip
LLAVA = {
    "encoders": {"image": "vision.onnx"}, "tile": 384, "side": 27, "patch": 14, "most_tiles": 9, "resample": 3,
    "grids": [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)],
    "background": [122, 116, 104], "image_token": "<image>", "video_token": "<video>", "frames": 32,
    "frames_per_second": 1.0,
}  # fmt: skip
IDEFICS2 = {
    "encoders": {"image": "vision.onnx"}, "patch": 14, "latents": 64, "shortest_edge": 378, "longest_edge": 980,
    "splitting": True, "resample": 2, "trained": 70, "image_token": "<image>", "around": "<fake>",
}  # fmt: skip


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo of 50 megapixels, on its side, of odd lengths."""
    path, exif = tmp_path_factory.mktemp("large") / "photo.jpg", Image.Exif()
    exif[0x0112] = 6
    pixels = np.tile(np.asarray(scene(540, 360)), (16, 16, 1))[:-1, :-1]
    Image.fromarray(pixels).save(path, quality=90, exif=exif)
    return path


@pytest.mark.parametrize(
    ("module", "name", "parameters"),
    [
        ("idefics3", "Idefics3", SMOLVLM),
        ("llava_onevision", "LlavaOnevision", LLAVA),
        ("idefics2", "Idefics2", IDEFICS2),
    ],
)
def test_a_photo_of_50_megapixels_takes_less_than_300_megabytes(
    module: str, name: str, parameters: dict[str, Any], large: Path
) -> None:
    script = PEAK.format(module=module, name=name, parameters=parameters)
    run = [sys.executable, "-c", script, str(large)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert 50 < int(done.stdout) < 300
