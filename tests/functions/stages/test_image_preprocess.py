"""`image.preprocess`: the square that the encoder looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

import functions.stages.image.preprocess  # noqa: F401 - registers the function
from bus.contracts import TensorRef
from bus.errors import MediaTooLargeError, MediaUnreadableError
from bus.store.media import save_media
from functions.environment import FunctionEnvironment
from tests.made.pictures import corners, huge_png, saved


async def preprocess(environment: FunctionEnvironment, *files: bytes, **more: Any) -> list[dict[str, Any]]:
    items = [
        {"part": part, "ref": (await save_media(environment.store, data, "image/png")).model_dump()}
        for part, data in enumerate(files)
    ]
    outputs = await environment.run("image.preprocess", {"images": items, **more})
    return list(outputs["images"])


async def pixels_of(environment: FunctionEnvironment, image: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(await environment.tensors.get(TensorRef.model_validate(image["pixels"])))


async def test_pixels_are_the_centre_seven_eighths_scaled_as_the_encoder_was_trained(
    environment: FunctionEnvironment,
) -> None:
    rng = np.random.default_rng(5)
    smooth = Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).resize((640, 480), Image.Resampling.BICUBIC)
    (image,) = await preprocess(environment, saved(smooth, "PNG"))
    # 480 × 0.875 = 420; the crop begins at ((640 − 420) / 2, (480 − 420) / 2).
    square = smooth.crop((110, 30, 530, 450)).resize((224, 224), Image.Resampling.BICUBIC)
    expected = (np.asarray(square, np.float32).transpose(2, 0, 1) - 127) / 128
    pixels = await pixels_of(environment, image)
    assert (pixels.dtype, pixels.shape) == (np.float32, (3, 224, 224))
    inner = (slice(None), slice(4, -4), slice(4, -4))
    assert np.abs(pixels[inner] - expected[inner]).max() <= 1 / 128
    assert (image["width"], image["height"]) == (640, 480)


async def test_the_corners_stay_where_they_are(environment: FunctionEnvironment) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved(corners().transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif)
    for image in await preprocess(environment, saved(corners(), "PNG"), turned):
        pixels = await pixels_of(environment, image)
        found = [(pixels[:, y, x] > 0).tolist() for y in (56, 168) for x in (56, 168)]
        assert found == [[True, False, False], [False, True, False], [False, False, True], [True, True, True]]


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 2), (224, 224), (7, 5)])
async def test_every_size_becomes_the_same_square(environment: FunctionEnvironment, size: tuple[int, int]) -> None:
    (image,) = await preprocess(environment, saved(Image.new("RGB", size, "red"), "PNG"))
    pixels = await pixels_of(environment, image)
    assert pixels.shape == (3, 224, 224)
    assert np.allclose(pixels[0], 1.0)


async def test_parts_and_sources_are_kept(environment: FunctionEnvironment) -> None:
    images = await preprocess(environment, saved(corners(), "PNG"), saved(corners(64, 64), "JPEG"))
    assert [image["part"] for image in images] == [0, 1]
    assert images[0]["source"] != images[1]["source"]


async def test_an_animation_gives_frames_when_asked(environment: FunctionEnvironment) -> None:
    frames = [Image.new("RGB", (32, 32), (index * 40, 0, 0)) for index in range(5)]
    gif = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    assert len(await preprocess(environment, gif)) == 1
    images = await preprocess(environment, gif, frames=3)
    assert [image["time_s"] for image in images] == pytest.approx([0.0, 0.2, 0.4])


async def test_no_images_give_no_tensors(environment: FunctionEnvironment) -> None:
    assert await preprocess(environment) == []


async def test_a_hostile_file_is_a_typed_error_and_the_next_one_is_served(environment: FunctionEnvironment) -> None:
    with pytest.raises(MediaTooLargeError):
        await preprocess(environment, huge_png())
    with pytest.raises(MediaUnreadableError):
        await preprocess(environment, saved(corners(), "PNG")[:200])
    assert len(await preprocess(environment, saved(corners(), "PNG"))) == 1
