"""`image.encode` on the demo's photo."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from bus.contracts import TensorRef
from bus.errors import InvalidInputError
from functions.environment import FunctionEnvironment
from functions.registry import registry
from runtime.repository import Repository
from runtime.vision.square import encoder_pixels

pytestmark = pytest.mark.models

registry.load("functions.stages")


def cat() -> np.ndarray:
    repository = Repository()
    return encoder_pixels(Image.open(repository.file(repository.resolve("cat-photo"), "chelsea.png")).convert("RGB"))


async def image(environment: FunctionEnvironment, part: int, pixels: np.ndarray, **fields: object) -> dict[str, object]:
    reference = await environment.tensors.put(pixels)
    return {"part": part, "pixels": reference, "width": 451, "height": 300, "source": f"digest-{part}", **fields}


async def test_a_photo_of_a_cat_becomes_soft_tokens_and_the_names_of_cats(environment: FunctionEnvironment) -> None:
    outputs = await environment.run("image.encode", {"images": [await image(environment, 3, cat())]})
    (labels,) = outputs["labels"]
    assert labels["part"] == 3
    assert set(labels["names"]) == {"tiger cat", "Egyptian cat", "tabby"}
    assert list(labels["probabilities"]) == sorted(labels["probabilities"], reverse=True)
    (block,) = outputs["blocks"]
    embeddings = await environment.tensors.get(TensorRef.model_validate(block["block"]["embeddings"]))
    positions = await environment.tensors.get(TensorRef.model_validate(block["block"]["positions"]))
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (2, 576)  # "tiger cat" is two tokens
    assert positions.tolist() == [[0, 1]] * 3
    assert block["block"]["composition"] == "label-bridge"
    assert block["block"]["compression"] == 49 / 2
    assert block["block"]["source"] == "digest-3"


async def test_the_last_soft_token_is_nearest_to_the_word_cat(environment: FunctionEnvironment) -> None:
    outputs = await environment.run("image.encode", {"images": [await image(environment, 0, cat())]})
    soft = await environment.tensors.get(TensorRef.model_validate(outputs["blocks"][0]["block"]["embeddings"]))
    repository = Repository()
    model = repository.resolve("chat")
    table = np.load(repository.file(model, "embeddings.npy")).astype(np.float32)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    assert int((table @ soft[-1]).argmax()) == 2644  # " cat"


async def test_pictures_in_a_batch_are_encoded_as_if_alone(environment: FunctionEnvironment) -> None:
    random = np.random.default_rng(0).uniform(-1, 1, (10, 3, 224, 224)).astype(np.float32)
    random[4] = cat()
    images = [await image(environment, place, pixels, time_s=float(place)) for place, pixels in enumerate(random)]
    together = await environment.run("image.encode", {"images": images})
    alone = await environment.run("image.encode", {"images": images[4:5]})
    assert [block["part"] for block in together["blocks"]] == list(range(10))
    assert together["labels"][4]["names"] == alone["labels"][0]["names"]
    np.testing.assert_allclose(together["labels"][4]["probabilities"], alone["labels"][0]["probabilities"], atol=1e-4)
    assert together["blocks"][4]["block"]["modality"] == "video"
    assert together["blocks"][4]["time_s"] == 4.0


async def test_no_pictures_give_no_blocks(environment: FunctionEnvironment) -> None:
    assert await environment.run("image.encode", {"images": []}) == {"blocks": (), "labels": ()}


async def test_pixels_of_another_size_are_refused(environment: FunctionEnvironment) -> None:
    wrong = await image(environment, 0, np.zeros((3, 100, 100), np.float32))
    with pytest.raises(InvalidInputError, match="pixel_values"):
        await environment.run("image.encode", {"images": [wrong]})
