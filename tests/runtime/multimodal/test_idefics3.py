"""Idefics3 and SmolVLM against transformers, step by step: pixels, encoder, tokens, logits, answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.smolvlm.processing_smolvlm import SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor
from transformers.video_utils import VideoMetadata

from bus.contracts import Modality
from bus.errors import ModelUnsupportedError
from runtime.generation.request import MEDIA_TOKEN
from runtime.multimodal.family import Detail, Film
from tests.runtime.multimodal.agreement import check_one_picture, check_one_prompt, check_shrunk, check_together
from tests.runtime.multimodal.drawn import SHAPES, scene
from tests.runtime.multimodal.idefics3_pair import (
    FAKE,
    GLOBAL,
    HALF,
    IMAGE,
    LONGEST,
    PLAIN,
    SAMPLING,
    SIDE,
    Pair,
    make,
)
from tests.runtime.multimodal.words import number


@pytest.fixture(scope="module", params=["idefics3", "smolvlm"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("saved")
    return make(folder, tmp_path_factory.mktemp("root"), request.param)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_picture_of_any_shape_has_the_pixels_and_features_of_the_reference(
    shape: tuple[int, int], pair: Pair
) -> None:
    picture = scene(*shape)
    prepared = pair.served.family.image(picture, PLAIN)
    right = pair.right(f"Look:{IMAGE}", [picture])
    pixels = HALF.apply(prepared.inputs["pixels"]).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(pixels, right.pixels, atol=1e-6)
    np.testing.assert_allclose(pair.served.encode(prepared)[0], right.features, atol=1e-4)


async def test_one_picture_gives_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    text = f"<s>User:Before.{IMAGE}What is this?\nAssistant:"
    await check_one_picture(pair, text, scene(300, 170), cuts=(9, 40))


async def test_pictures_of_different_shapes_stand_in_one_prompt(pair: Pair) -> None:
    text = f"<s>User:First{IMAGE}{IMAGE}then\n\n{IMAGE}\nAssistant: I see.\nUser: and now?\nAssistant:"
    await check_one_prompt(pair, text, [scene(200, 150, 1), scene(60, 300, 2), scene(300, 40, 3)])


async def test_requests_that_run_together_get_what_they_would_get_alone(pair: Pair) -> None:
    one = (f"<s>User:{IMAGE}Yes?\nAssistant:", [scene(250, 190, 4)])
    other = (f"<s>User:A word{IMAGE}{IMAGE}\nAssistant:", [scene(30, 40, 5), scene(222, 111, 6)])
    await check_together(pair, [one, other])


def test_every_token_knows_what_it_sees(pair: Pair) -> None:
    prepared = pair.served.family.image(scene(200, 150), PLAIN)
    assert prepared.regions is not None
    assert prepared.grid == (1, 3 * SIDE, 4 * SIDE)
    tiles = prepared.regions[: -(SIDE**2)].reshape(3, 4, SIDE, SIDE, 4)
    seen = 56 / pair.tile
    token = [(1 + seen / 2) / 4, 2 / 3, (1 + seen) / 4, (2 + seen / 2) / 3]
    np.testing.assert_allclose(tiles[2, 1, 0, 1], token, atol=1e-6)
    areas = (prepared.regions[:, 2:] - prepared.regions[:, :2]).prod(axis=1)
    assert areas[: -(SIDE**2)].sum() == pytest.approx(seen**2) == areas[-(SIDE**2) :].sum()


def test_low_detail_is_the_whole_picture_alone(pair: Pair) -> None:
    picture = scene(200, 150)
    prepared = pair.served.family.image(picture, Detail(level="low"))
    right = pair.pictures([[picture]], do_image_splitting=False, return_tensors="np")["pixel_values"][0]
    assert prepared.tokens == SIDE**2
    np.testing.assert_allclose(HALF.apply(prepared.inputs["pixels"]).transpose(0, 3, 1, 2), right, atol=1e-6)


@pytest.mark.parametrize("most", [4, 19, 20, 40, 67, 1000])
def test_a_budget_of_tokens_is_kept_by_taking_fewer_tiles(most: int, pair: Pair) -> None:
    prepared = pair.served.family.image(scene(200, 190), Detail(max_tokens=most))
    assert prepared.tokens <= most
    assert (prepared.tokens > SIDE**2) == (most >= 5 * SIDE**2)


def test_a_film_is_frames_with_their_times(pair: Pair) -> None:
    film = Film([scene(120, 90, seed) for seed in range(3)], [0.0, 62.4, 125.0], 126.2)
    if pair.name == "idefics3":
        with pytest.raises(ModelUnsupportedError, match="no video"):
            pair.served.family.video(film, PLAIN)
        return
    prepared = pair.served.family.video(film, PLAIN)
    processor = SmolVLMProcessor.__new__(SmolVLMProcessor)
    processor.fake_image_token, processor.image_token, processor.global_image_token = FAKE, IMAGE, GLOBAL
    processor.image_seq_len = SIDE**2
    metadata = VideoMetadata(total_num_frames=1262, fps=10.0, duration=126.2, frames_indices=[0, 624, 1250])
    pixels = np.zeros((1, 3, 3, pair.tile, pair.tile))
    text = processor.replace_video_token({"pixel_values": pixels, "video_metadata": [metadata]}, 0)
    ids = pair.words(text, add_special_tokens=False)["input_ids"]
    found = pair.served.prompt((prepared, pair.served.encode(prepared)[0])).tokens.ids
    placeholder = number(pair.words, IMAGE)
    assert [placeholder if token == MEDIA_TOKEN else token for token in found.tolist()] == ids
    assert prepared.grid == (3, SIDE, SIDE)
    assert prepared.seconds_per_step == pytest.approx(62.5)
    # Frames are prepared as pictures without tiles are.
    told: Any = {"size": {"longest_edge": LONGEST}, "video_sampling": {**SAMPLING}}
    changes = {"do_image_splitting": False, "size": SmolVLMVideoProcessor(**told).size}
    right = pair.pictures([list(film.frames)], return_tensors="pt", **changes)
    np.testing.assert_allclose(
        HALF.apply(prepared.inputs["pixels"]).transpose(0, 3, 1, 2), right["pixel_values"][0].numpy(), atol=1e-6
    )
    with torch.inference_mode():
        model: Any = pair.model.model
        features = model.get_image_features(right["pixel_values"], right["pixel_attention_mask"]).pooler_output[0]
    np.testing.assert_allclose(pair.served.encode(prepared)[0], features.numpy(), atol=1e-4)


@pytest.mark.parametrize(("seconds", "rate"), [(0.1, 25.0), (2.0, 24.0), (7.3, 29.97), (60.0, 30.0), (3600.0, 23.976)])
def test_a_film_is_looked_at_when_the_reference_does(seconds: float, rate: float, pair: Pair) -> None:
    if pair.name == "idefics3":
        assert Modality.VIDEO not in pair.served.family.placeholders
        return
    total = max(1, round(seconds * rate))
    metadata = VideoMetadata(total_num_frames=total, fps=rate, duration=seconds)
    right = SmolVLMVideoProcessor.sample_frames(SimpleNamespace(), metadata, num_frames=6, fps=2)  # type: ignore[arg-type]
    found = pair.served.family.frames(seconds, rate, PLAIN)
    np.testing.assert_allclose(found, right / rate, atol=0.101 / rate)
    assert (np.array(found) > right / rate).all()  # where no rounding can make it the frame before
    assert len(pair.served.family.frames(seconds, rate, Detail(max_tokens=2 * SIDE**2))) <= 2


def test_a_photo_that_is_shrunk_while_it_is_decoded_is_nearly_the_same(pair: Pair) -> None:
    check_shrunk(pair.served, "pixels")
