"""`image.embed`: photos found by what is said of them. They come out of the package that the demo's photo is from."""

from __future__ import annotations

import asyncio
import io

import numpy as np
import pytest
from PIL import Image

from bus.contracts import TensorRef
from bus.errors import InvalidInputError
from functions.environment import FunctionEnvironment
from functions.registry import registry
from runtime.repository import Repository, builtin_catalog
from runtime.repository.archive import copy_member
from runtime.repository.source import Source
from runtime.repository.sources import FETCHERS, Wanted
from runtime.vision.square import encoder_pixels

pytestmark = pytest.mark.models

registry.load("functions.stages")

PHOTOS = ("chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "camera.png")
QUERIES = {
    "a cat": "chelsea.png",
    "a kitten with whiskers": "chelsea.png",
    "a cup of coffee": "coffee.png",
    "something hot to drink in the morning": "coffee.png",
    "a rocket taking off": "rocket.jpg",
    "a missile launch": "rocket.jpg",
    "a motorcycle": "motorcycle_left.png",
    "a scooter with two wheels": "motorcycle_left.png",
    "a camera on a tripod": "camera.png",
}


def photo(name: str) -> np.ndarray:
    (raw,) = builtin_catalog().get("cat-photo").sources
    source = Source.parse(raw.source)
    wanted = Wanted(
        source=source, members=(), downloads=Repository().downloads, sha256=raw.sha256, filename=raw.filename
    )
    content = io.BytesIO()
    copy_member(FETCHERS[source.scheme](wanted), f"skimage/data/{name}", content)
    return encoder_pixels(Image.open(content).convert("RGB"))


async def image(environment: FunctionEnvironment, part: int, pixels: np.ndarray) -> dict[str, object]:
    reference = await environment.tensors.put(pixels)
    return {"part": part, "pixels": reference, "width": 451, "height": 300, "source": f"digest-{part}"}


async def vectors(environment: FunctionEnvironment, name: str, inputs: dict[str, object]) -> np.ndarray:
    outputs = await environment.run(name, inputs)
    return await environment.tensors.get(TensorRef.model_validate(outputs["vectors"]))


async def test_nine_of_nine_queries_find_their_photo(environment: FunctionEnvironment) -> None:
    images = [await image(environment, part, photo(name)) for part, name in enumerate(PHOTOS)]
    pictures = await vectors(environment, "image.embed", {"images": images})
    texts = await vectors(environment, "text.embed", {"texts": list(QUERIES)})
    found = [PHOTOS[place] for place in (texts @ pictures.T).argmax(axis=1)]
    assert dict(zip(QUERIES, found, strict=True)) == QUERIES


async def test_vectors_say_that_they_are_a_composition(environment: FunctionEnvironment) -> None:
    outputs = await environment.run("image.embed", {"images": [await image(environment, 3, photo("coffee.png"))]})
    assert outputs["parts"] == (3,)
    assert outputs["composition"] == "label-space"
    assert outputs["model"].startswith("label-space@")
    assert outputs["texts"].startswith("all-minilm-l6-v2@")
    (vector,) = await environment.tensors.get(TensorRef.model_validate(outputs["vectors"]))
    assert vector.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vector), 1, atol=1e-5)


@pytest.mark.parametrize("function", ["image.embed", "image.encode"])
@pytest.mark.parametrize(
    ("pixels", "problem"),
    [
        (np.full((3, 224, 224), np.nan, np.float32), "picture 0 has pixels that are no numbers"),
        (np.full((3, 224, 224), np.inf, np.float32), "no numbers"),
        (np.zeros((3, 100, 100), np.float32), "pixel_values"),
        (np.zeros((3, 224, 224), np.float16), "pixel_values"),
        (np.zeros((224, 224), np.float32), "pixel_values"),
        (np.zeros((3, 224, 224), np.uint8), "pixel_values"),
    ],
)
async def test_what_is_no_picture_is_refused(
    environment: FunctionEnvironment, function: str, pixels: np.ndarray, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await environment.run(function, {"images": [await image(environment, 0, pixels)]})


async def test_a_picture_that_does_not_fit_ends_no_other_one(environment: FunctionEnvironment) -> None:
    good = [await image(environment, 0, photo("coffee.png"))]
    bad = [await image(environment, 1, np.zeros((3, 9, 9), np.float32))]
    answers = await asyncio.gather(
        *(environment.run("image.embed", {"images": images}) for images in (good, bad, good)), return_exceptions=True
    )
    assert [isinstance(one, InvalidInputError) for one in answers] == [False, True, False]


async def test_no_pictures_are_refused(environment: FunctionEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="images"):
        await environment.run("image.embed", {"images": []})
