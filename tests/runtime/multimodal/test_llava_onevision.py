"""LLaVA-OneVision against transformers, step by step: pixels, encoder, tokens, logits, answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.image_utils import SizeDict
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from runtime.graphs.encoders.pixels import Normalisation
from runtime.multimodal.family import Detail, Film
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.agreement import (
    MergedPrompt,
    check_one_picture,
    check_one_prompt,
    check_prompt,
    check_shrunk,
    check_together,
)
from tests.runtime.multimodal.drawn import SHAPES, scene
from tests.runtime.multimodal.llava_pair import (
    IMAGE,
    MEAN,
    ONE_OF_SEVERAL,
    PLAIN,
    SIDE,
    STD,
    TILE,
    VIDEO,
    Pair,
    make,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("saved")
    return make(folder, tmp_path_factory.mktemp("root"))


def normalised(pixels: NDArray[Any]) -> NDArray[np.float32]:
    return Normalisation(1 / 255, MEAN, STD).apply(pixels).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_picture_of_any_shape_has_the_pixels_and_features_of_the_reference(
    shape: tuple[int, int], pair: Pair
) -> None:
    picture = scene(*shape)
    prepared = pair.served.family.image(picture, PLAIN)
    given = pair.given(f"Look:{IMAGE}", [picture])
    np.testing.assert_allclose(normalised(prepared.inputs["pixels"]), given["pixel_values"][0].numpy(), atol=1e-6)
    np.testing.assert_allclose(pair.served.encode(prepared)[0], pair.features(given)[0], atol=1e-4)
    assert prepared.regions is not None
    assert (prepared.regions[:, :2] <= prepared.regions[:, 2:]).all()


async def test_one_picture_gives_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    text = f"<|im_start|>user {IMAGE}\nWhat is this?<|im_end|><|im_start|>assistant\n"
    await check_one_picture(pair, text, scene(300, 170), cuts=(9, 40))


async def test_pictures_of_different_shapes_stand_in_one_prompt(pair: Pair) -> None:
    pictures = [scene(200, 150, 1), scene(60, 301, 2), scene(300, 40, 3)]
    text = f"First{IMAGE}\n{IMAGE}\nthen {IMAGE}\n<|im_end|><|im_start|>assistant\nI see.<|im_end|>And?"
    right = pair.given(text, pictures)["pixel_values"].reshape(3, -1, 3, TILE, TILE)
    for place, picture in enumerate(pictures):
        pixels = pair.served.family.image(picture, ONE_OF_SEVERAL).inputs["pixels"]
        np.testing.assert_allclose(normalised(pixels), right[place, :1].numpy(), atol=1e-6)
    await check_one_prompt(pair, text, pictures, ONE_OF_SEVERAL)


async def test_requests_that_run_together_get_what_they_would_get_alone(pair: Pair) -> None:
    one, other = (f"One {IMAGE} it is.", [scene(250, 190, 4)]), (f"{IMAGE}\nOr this?", [scene(30, 40, 5)])
    await check_together(pair, [one, other])


async def test_a_film_is_frames_of_pooled_tokens(pair: Pair) -> None:
    film = Film([scene(120, 90, seed) for seed in range(3)], [0.0, 1.5, 3.0], 4.0)
    prepared = pair.served.family.video(film, PLAIN)
    frames = []
    for frame in film.frames:
        small = pair.pictures.resize(
            np.asarray(frame).transpose(2, 0, 1), SizeDict(height=TILE, width=TILE), pair.pictures.resample
        )
        frames.append(pair.pictures.normalize(pair.pictures.rescale(small, 1 / 255), MEAN, STD))
    pixels = torch.from_numpy(np.stack(frames))
    np.testing.assert_allclose(normalised(prepared.inputs["pixels"]), pixels.numpy(), atol=1e-6)
    writer: Any = SimpleNamespace(num_image_tokens=SIDE**2, video_token=VIDEO)
    text = LlavaOnevisionProcessor.replace_video_token(writer, {"pixel_values_videos": pixels[None]}, 0)
    ids = pair.words(f"A film:{text}\nWhy?", add_special_tokens=False, return_tensors="pt")["input_ids"]
    right = pair.embedded({"input_ids": ids, "pixel_values_videos": pixels[None]})
    found = pair.served.prompt("A film:", (prepared, pair.served.encode(prepared)[0]), "\nWhy?")
    check_prompt(pair, found, MergedPrompt(ids[0].tolist(), right), VIDEO)
    np.testing.assert_allclose(pair.served.logits(found), merged.logits(pair.model, right)[-1], atol=1e-3)
    assert await pair.served.greedy(32, found) == [merged.greedy(pair.model, right, 32)]
    assert prepared.grid == (3, SIDE // 2, SIDE // 2)
    assert prepared.seconds_per_step == pytest.approx(1.5)


def test_a_film_is_looked_at_once_a_second(pair: Pair) -> None:
    assert pair.served.family.frames(4.0, 30.0, PLAIN) == pytest.approx([0, 1.3, 2.6333333, 3.9666667], abs=0.004)
    assert len(pair.served.family.frames(500.0, 25.0, PLAIN)) == 32
    assert len(pair.served.family.frames(500.0, 25.0, Detail(max_tokens=13))) == 3


@pytest.mark.parametrize("most", [17, 30, 60, 100, 1000])
def test_a_budget_of_tokens_is_kept_by_choosing_a_smaller_grid(most: int, pair: Pair) -> None:
    picture = scene(200, 190)
    prepared = pair.served.family.image(picture, Detail(max_tokens=most))
    assert prepared.tokens <= most
    whole = pair.served.family.image(picture, PLAIN)
    assert (prepared.tokens == whole.tokens) == (most >= whole.tokens)
    assert pair.served.family.image(picture, Detail(level="low")).tokens == SIDE**2 + 1


def test_every_token_knows_what_it_sees(pair: Pair) -> None:
    prepared = pair.served.family.image(scene(2 * TILE, TILE), PLAIN)
    assert prepared.regions is not None
    assert prepared.grid == (1, SIDE, 2 * SIDE)
    shown = prepared.regions[SIDE**2 :].reshape(SIDE, 2 * SIDE + 1, 4)
    np.testing.assert_allclose(shown[1, 5], [74 / 120, 14 / 60, 88 / 120, 28 / 60], atol=1e-6)
    np.testing.assert_allclose(shown[1, -1], [0, 14 / 60, 1, 28 / 60], atol=1e-6)


def test_a_photo_that_is_shrunk_while_it_is_decoded_is_nearly_the_same(pair: Pair) -> None:
    check_shrunk(pair.served, "pixels")
