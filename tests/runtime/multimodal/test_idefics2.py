"""Idefics2 against transformers, step by step: pixels, encoder, tokens, logits, answers."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.graphs.encoders.pixels import Normalisation
from runtime.multimodal.family import Detail
from tests.runtime.multimodal.agreement import check_one_picture, check_one_prompt, check_shrunk, check_together
from tests.runtime.multimodal.drawn import SHAPES, scene
from tests.runtime.multimodal.idefics2_pair import (
    IMAGE,
    LATENTS,
    PATCH,
    PLAIN,
    Pair,
    make,
)


@pytest.fixture(scope="module", params=[True, False], ids=["in quarters", "whole"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("saved")
    return make(folder, tmp_path_factory.mktemp("root"), splitting=request.param)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_picture_of_any_shape_has_the_pixels_and_features_of_the_reference(
    shape: tuple[int, int], pair: Pair
) -> None:
    picture = scene(*shape)
    prepared = pair.served.family.image(picture, PLAIN)
    if min(shape) == 1:  # the reference fails at its quarters, which have no pixels
        pair.processor.image_processor.do_image_splitting = False
    given = pair.given(f"Look:{IMAGE}", [picture])
    pair.processor.image_processor.do_image_splitting = pair.served.manifest.parameters["multimodal"]["splitting"]
    found = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3).apply(
        prepared.inputs["patches"].reshape(-1, PATCH, PATCH, 3)
    )
    start = 0
    for tile, mask, count in zip(
        given["pixel_values"][0].numpy(),
        given["pixel_attention_mask"][0].numpy(),
        prepared.inputs["lengths"],
        strict=True,
    ):
        rows, columns = mask[:, 0].sum() // PATCH, mask[0].sum() // PATCH
        assert rows * columns == count
        right = tile[:, : rows * PATCH, : columns * PATCH].reshape(3, rows, PATCH, columns, PATCH)
        right = right.transpose(1, 3, 2, 4, 0).reshape(-1, PATCH, PATCH, 3)
        np.testing.assert_allclose(found[start : start + count], right, atol=1e-6)
        start += count
    np.testing.assert_allclose(pair.served.encode(prepared)[0], pair.features(given), atol=1e-4)


async def test_one_picture_gives_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    text = f"User:Before.{IMAGE}What is this?<end_of_utterance>\nAssistant:"
    await check_one_picture(pair, text, scene(300, 170), cuts=(9, 20))


async def test_pictures_of_different_shapes_stand_in_one_prompt(pair: Pair) -> None:
    text = f"User:First{IMAGE}{IMAGE}<end_of_utterance>\nAssistant: I see.\nUser: and {IMAGE} now?\nAssistant:"
    await check_one_prompt(pair, text, [scene(200, 150, 1), scene(60, 300, 2), scene(300, 40, 3)])


async def test_requests_that_run_together_get_what_they_would_get_alone(pair: Pair) -> None:
    one, other = (f"One {IMAGE} it is.", [scene(250, 190, 4)]), (f"{IMAGE}\nOr this?", [scene(30, 40, 5)])
    await check_together(pair, [one, other])


def test_every_token_sees_a_quarter_or_all_of_the_picture(pair: Pair) -> None:
    prepared = pair.served.family.image(scene(201, 100), PLAIN)
    assert prepared.regions is not None
    boxes = [list(box) for box in np.unique(prepared.regions, axis=0).round(6)]
    if prepared.tokens == LATENTS:
        assert boxes == [[0, 0, 1, 1]]
        return
    middle = round(100 / 201, 6)
    assert prepared.regions[LATENTS].round(6).tolist() == pytest.approx([middle, 0, 1, 0.5])
    assert len(boxes) == 5


@pytest.mark.parametrize("detail", [Detail(level="low"), Detail(max_tokens=5 * LATENTS - 1)])
def test_less_detail_is_the_whole_picture_alone(detail: Detail, pair: Pair) -> None:
    assert pair.served.family.image(scene(200, 150), detail).tokens == LATENTS


def test_a_photo_that_is_shrunk_while_it_is_decoded_is_nearly_the_same(pair: Pair) -> None:
    check_shrunk(pair.served, "patches")
