"""Idefics2 against transformers, step by step: pixels, encoder, tokens, logits, answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bus.contracts import MediaLimits
from runtime.generation.request import MEDIA_TOKEN
from runtime.graphs.encoders.pixels import Normalisation
from runtime.media.images import decode
from runtime.multimodal.family import Detail
from tests.made.pictures import saved
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import SHAPES, scene
from tests.runtime.multimodal.idefics2_pair import (
    IMAGE,
    LATENTS,
    PATCH,
    PLAIN,
    Pair,
    make,
)
from tests.runtime.multimodal.served import Prompt
from tests.runtime.multimodal.words import number


@pytest.fixture(scope="module", params=[True, False], ids=["in quarters", "whole"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("saved")
    return make(folder, tmp_path_factory.mktemp("root"), splitting=request.param)


def check(found: Prompt, right: torch.Tensor, ids: torch.Tensor, placeholder: int) -> None:
    """Tokens, their places, and embeddings of the whole prompt."""
    ours = [placeholder if token == MEDIA_TOKEN else token for token in found.tokens.ids.tolist()]
    assert ours == ids[0].tolist()
    np.testing.assert_allclose(found.embedded, right.numpy(), atol=1e-4)


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
    picture = scene(300, 170)
    text = f"User:Before.{IMAGE}What is this?<end_of_utterance>\nAssistant:"
    given = pair.given(text, [picture])
    right = pair.embedded(given)
    found = pair.prompt(text, [pair.served.family.image(picture, PLAIN)])
    check(found, right, given["input_ids"], number(pair.words, IMAGE))
    logits = merged.logits(pair.model, right)
    np.testing.assert_allclose(pair.served.logits(found), logits[-1], atol=1e-3)
    np.testing.assert_allclose(pair.served.logits(found, 9, 20), logits[-1], atol=1e-3)
    answer = merged.greedy(pair.model, right, 32)
    assert len(set(answer)) > 8  # an answer that repeats itself would prove little
    assert await pair.served.greedy(32, found) == [answer]
    assert await pair.served.greedy(32, found) == [answer]  # with its prefix from the cache


async def test_pictures_of_different_shapes_stand_in_one_prompt(pair: Pair) -> None:
    pictures = [scene(200, 150, 1), scene(60, 300, 2), scene(300, 40, 3)]
    text = f"User:First{IMAGE}{IMAGE}<end_of_utterance>\nAssistant: I see.\nUser: and {IMAGE} now?\nAssistant:"
    given = pair.given(text, pictures)
    right = pair.embedded(given)
    found = pair.prompt(text, [pair.served.family.image(one, PLAIN) for one in pictures])
    check(found, right, given["input_ids"], number(pair.words, IMAGE))
    np.testing.assert_allclose(pair.served.logits(found), merged.logits(pair.model, right)[-1], atol=1e-3)
    assert await pair.served.greedy(32, found) == [merged.greedy(pair.model, right, 32)]


async def test_requests_that_run_together_get_what_they_would_get_alone(pair: Pair) -> None:
    texts, pictures = [f"One {IMAGE} it is.", f"{IMAGE}\nOr this?"], [scene(250, 190, 4), scene(30, 40, 5)]
    pieces = [pair.served.family.image(one, PLAIN) for one in pictures]
    for piece, embeddings in zip(pieces, pair.served.encode(*pieces), strict=True):
        np.testing.assert_allclose(pair.served.encode(piece)[0], embeddings, atol=1e-5)
    prompts = [pair.prompt(text, [piece]) for text, piece in zip(texts, pieces, strict=True)]
    right = [pair.embedded(pair.given(text, [one])) for text, one in zip(texts, pictures, strict=True)]
    assert await pair.served.greedy(16, *prompts) == [merged.greedy(pair.model, one, 16) for one in right]


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
    detail, family = Detail(level="low"), pair.served.family
    data = saved(scene(480, 360).resize((1920, 1440)), "JPEG", quality=90)
    (whole,) = decode(data, MediaLimits())
    (shrunk,) = decode(data, MediaLimits(), resolution=lambda width, height: family.resolution(width, height, detail))
    assert shrunk.image.width < whole.image.width
    right, found = family.image(whole.image, detail), family.image(shrunk.image, detail)
    assert found.frame == right.frame
    deviation = np.abs(found.inputs["patches"].astype(int) - right.inputs["patches"])
    assert deviation.max() <= 6
    assert deviation.mean() <= 0.5
