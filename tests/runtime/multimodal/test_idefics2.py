"""Idefics2 against transformers, step by step: pixels, encoder, tokens, logits, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import Idefics2Config, Idefics2ForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics2.processing_idefics2 import Idefics2Processor

from bus.contracts import MediaLimits
from runtime.generation.request import MEDIA_TOKEN
from runtime.graphs.encoders.pixels import Normalisation
from runtime.media.images import decode
from runtime.multimodal.family import Detail
from runtime.multimodal.prepared import Prepared
from tests.made.pictures import saved
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import SHAPES, scene
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

FAKE, IMAGE = "<fake_token_around_image>", "<image>"
PATCH, LATENTS, SHORTEST, LONGEST = 14, 5, 47, 103
PLAIN = Detail()
HALF = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3)
TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}:{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<image>{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
TEXT = {
    "model_type": "mistral", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "sliding_window": 60, "rms_norm_eps": 1e-5,
}  # fmt: skip
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 70,
    "patch_size": PATCH,
}  # fmt: skip
PERCEIVER = {
    "hidden_size": 64, "resampler_n_latents": LATENTS, "resampler_depth": 2, "resampler_n_heads": 4,
    "resampler_head_dim": 24, "num_key_value_heads": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    model: Idefics2ForConditionalGeneration
    processor: Idefics2Processor
    words: PreTrainedTokenizerFast
    served: Served

    def given(self, text: str, images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        """The reference's inputs; `text` has `<image>` for each picture of one prompt."""
        given: dict[str, torch.Tensor] = self.processor(text=text, images=[list(images)], return_tensors="pt")
        return given

    def embedded(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the reference gives to its language model."""
        return merged.embedded(self.model, self.model.model.text_model, **given)

    def features(self, given: dict[str, torch.Tensor]) -> NDArray[np.float32]:
        """Tokens of all pictures."""
        with torch.inference_mode():
            found = self.model.model.get_image_features(given["pixel_values"], given["pixel_attention_mask"])
        features: NDArray[np.float32] = torch.cat(list(found.pooler_output)).numpy()
        return features

    def prompt(self, text: str, pieces: Sequence[Prepared]) -> Prompt:
        """Ours of the same."""
        before, *behind = text.split(IMAGE)
        parts: list[Any] = [before]
        for words, piece, embeddings in zip(behind, pieces, self.served.encode(*pieces), strict=True):
            parts += [(piece, embeddings), words]
        return self.served.prompt(*parts)


@pytest.fixture(scope="module", params=[True, False], ids=["in quarters", "whole"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    words = tokenizer(FAKE, IMAGE, "<end_of_utterance>", template=TEMPLATE)
    folder = tmp_path_factory.mktemp("saved")
    config = Idefics2Config(
        text_config=TEXT, vision_config=TOWER, perceiver_config=PERCEIVER, image_token_id=number(words, IMAGE)
    )
    model = Idefics2ForConditionalGeneration(config)
    reference.randomise(model)
    model.train(False)
    pictures = Idefics2ImageProcessorPil(
        size={"shortest_edge": SHORTEST, "longest_edge": LONGEST}, do_image_splitting=request.param
    )
    processor = Idefics2Processor(pictures, words, image_seq_len=LATENTS, chat_template=TEMPLATE)
    processor.save_pretrained(folder)
    reference.save(model, folder)
    return Pair(model, processor, words, Served(folder, tmp_path_factory.mktemp("root")))


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
