"""Qwen2-VL and Qwen2.5-VL against transformers, step by step: pixels, encoder, positions, logits, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from runtime.generation.request import MEDIA_TOKEN
from runtime.multimodal.family import Detail, Film
from runtime.multimodal.prepared import Prepared
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import SHAPES, film, scene
from tests.runtime.multimodal.patches import normalised, patches_of
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

Floats = NDArray[np.float32]
START, END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
PICTURE, FILM = f"{START}{IMAGE}{END}", f"{START}{VIDEO}{END}"
TOKEN, MOST = 28, 60
FILM_PIXELS = {"shortest_edge": 4 * TOKEN**2, "longest_edge": 12 * TOKEN**2}
PLAIN = Detail()
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}" + PICTURE + "{% else %}" + FILM + ""
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]},
}  # fmt: skip


@dataclass(frozen=True)
class Right:
    """What the reference makes of a prompt."""

    ids: list[int]
    pixels: list[Floats]
    features: list[Floats]
    embedded: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True)
class Pair:
    name: str
    model: PreTrainedModel
    words: PreTrainedTokenizerFast
    pictures: Any
    served: Served

    def right(self, text: str, images: Sequence[Image.Image] = (), films: Sequence[Film] = ()) -> Right:
        """The reference's inputs, merged embeddings and positions; `text` has a placeholder for each piece."""
        pictures = [patches_of(self.pictures, [image]) for image in images]
        videos = [patches_of(self.pictures, list(film.frames), FILM_PIXELS) for film in films]
        for token, grids in ((IMAGE, [grid for _, grid in pictures]), (VIDEO, [grid for _, grid in videos])):
            for grid in grids:
                text = text.replace(token, "<again>" * (int(grid.prod()) // 4), 1)
            text = text.replace("<again>", token)
        ids = self.words(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        kinds = (ids == number(self.words, IMAGE)).int() + 2 * (ids == number(self.words, VIDEO)).int()
        given = {"input_ids": ids, "mm_token_type_ids": kinds}
        for kind, name, pieces in (("image", "pixel_values", pictures), ("video", "pixel_values_videos", videos)):
            if pieces:
                given[name] = torch.cat([pixels for pixels, _ in pieces])
                given[f"{kind}_grid_thw"] = torch.stack([grid for _, grid in pieces])
        if films and self.name == "qwen2_5_vl":
            given["second_per_grid_ts"] = torch.tensor([2 * film.seconds / len(film.times_s) for film in films])
        return self._merged(given, [*pictures, *videos])

    def _merged(self, given: dict[str, Any], pieces: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Right:
        inner: Any = self.model.model
        with torch.inference_mode():
            features = [inner.visual(pixels, grid_thw=grid[None]).pooler_output.numpy() for pixels, grid in pieces]
            positions, _ = inner.get_rope_index(**given)
        embedded = merged.embedded(self.model, inner.language_model, **given)
        pixels = [one.numpy() for one, _ in pieces]
        ids = given["input_ids"][0]
        places = self._after_films(positions[:, 0], ids == number(self.words, VIDEO))
        return Right(ids.tolist(), pixels, features, embedded, places)

    def _after_films(self, positions: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        """Positions as Qwen's own code and the paper have them: what follows a film comes after all of it.

        Transformers 5 goes on from the film's height and width alone, so that words share positions with its later
        frames.
        """
        placed = positions.clone()
        ends = torch.nonzero(film[:-1] & ~film[1:]).flatten() + 1
        for end in ends.tolist():
            placed[:, end:] += placed[:, :end].max() + 1 - placed[0, end]
        return placed

    def prompt(self, text: str, *pieces: Prepared) -> Prompt:
        """Ours of the same; pieces in the order of their placeholders."""
        parts: list[Any] = []
        for piece in pieces:
            token = self.served.family.placeholders[piece.modality]
            before, _, text = text.partition(token)
            parts += [before, (piece, self.served.encode(piece)[0])]
        return self.served.prompt(*parts, text)


def _model(name: str) -> PreTrainedModel:
    if name == "qwen2_vl":
        tower: dict[str, Any] = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4}
        return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=TEXT, vision_config=tower))
    tower = {
        "depth": 4, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64,
        "fullatt_block_indexes": [1, 3], "tokens_per_second": 4,
    }  # fmt: skip
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=TEXT, vision_config=tower))


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    words = tokenizer(START, END, IMAGE, VIDEO, "<|im_start|>", "<|im_end|>", template=TEMPLATE)
    model, folder = _model(request.param), tmp_path_factory.mktemp("saved")
    for key, token in (("image_token_id", IMAGE), ("video_token_id", VIDEO), ("vision_start_token_id", START)):
        setattr(model.config, key, number(words, token))
    reference.randomise(model)
    with torch.no_grad():
        model.get_parameter("model.visual.patch_embed.proj.weight").mul_(0.03)
    model.train(False)
    pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": MOST * TOKEN**2})
    pictures.save_pretrained(folder)
    (folder / "video_preprocessor_config.json").write_text(f'{{"size": {FILM_PIXELS}}}'.replace("'", '"'))
    words.save_pretrained(folder)
    reference.save(model, folder)
    return Pair(request.param, model, words, pictures, Served(folder, tmp_path_factory.mktemp("root")))


def check(found: Prompt, right: Right, pair: Pair) -> None:
    """Tokens, their places and positions, and embeddings of the whole prompt."""
    ids, media = found.tokens.ids.tolist(), [number(pair.words, token) for token in (IMAGE, VIDEO)]
    assert [place for place, token in enumerate(right.ids) if token in media] == found.slots.tolist()
    assert [token for token in ids if token != MEDIA_TOKEN] == [token for token in right.ids if token not in media]
    np.testing.assert_array_equal(found.tokens.positions, right.positions.numpy())
    np.testing.assert_allclose(found.embedded, right.embedded.numpy(), atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_picture_of_any_shape_has_the_pixels_and_features_of_the_reference(
    shape: tuple[int, int], pair: Pair
) -> None:
    picture = scene(*shape)
    prepared = pair.served.family.image(picture, PLAIN)
    right = pair.right(PICTURE, [picture])
    np.testing.assert_allclose(normalised(prepared), right.pixels[0], atol=1e-6)
    np.testing.assert_allclose(pair.served.encode(prepared)[0], right.features[0], atol=1e-4)


def test_pictures_of_different_shapes_run_together_as_they_would_alone(pair: Pair) -> None:
    pieces = [pair.served.family.image(scene(*shape), PLAIN) for shape in ((120, 90), (301, 199), (90, 120), (60, 60))]
    together = pair.served.encode(*pieces)
    for piece, found in zip(pieces, together, strict=True):
        np.testing.assert_allclose(found, pair.served.encode(piece)[0], atol=1e-5)


def test_three_pictures_and_text_between_them_are_placed_as_by_the_reference(pair: Pair) -> None:
    pictures = [scene(*shape, seed) for seed, shape in enumerate(((300, 170), (64, 200), (111, 111)))]
    text = f"Compare {PICTURE}with{PICTURE}{PICTURE} and tell."
    right = pair.right(text, pictures)
    pieces = [pair.served.family.image(picture, PLAIN) for picture in pictures]
    check(pair.prompt(text, *pieces), right, pair)


@pytest.mark.parametrize(("count", "seconds"), [(2, 1.0), (8, 4.0), (5, 2.5), (1, 0.04), (6, 1.7)])
def test_a_film_has_the_pixels_features_and_positions_of_the_reference(count: int, seconds: float, pair: Pair) -> None:
    shown = film(count, seconds, 200, 200)
    prepared = pair.served.family.video(shown, PLAIN)
    text = f"Watch {FILM} now."
    right = pair.right(text, films=[shown])
    np.testing.assert_allclose(normalised(prepared), right.pixels[0], atol=1e-6)
    np.testing.assert_allclose(pair.served.encode(prepared)[0], right.features[0], atol=1e-4)
    check(pair.prompt(text, prepared), right, pair)


async def test_everything_mixed_gives_the_logits_and_the_answer_of_the_reference(pair: Pair) -> None:
    pictures, films = [scene(300, 170), scene(50, 170, 1)], [film(6, 3.0), film(3, 2.0, 60, 90)]
    turns = [
        f"<|im_start|>user\nFirst {PICTURE}, a film {FILM} then.<|im_end|>\n",
        f"<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\n{FILM}{PICTURE}again<|im_end|>\n",
    ]
    text = "".join(turns) + "<|im_start|>assistant\n"
    family = pair.served.family
    pieces = [
        family.image(pictures[0], PLAIN),
        family.video(films[0], PLAIN),
        family.video(films[1], PLAIN),
        family.image(pictures[1], PLAIN),
    ]
    right, found = pair.right(text, pictures, films), pair.prompt(text, *pieces)
    check(found, right, pair)
    logits = merged.logits(pair.model, right.embedded, right.positions)[-1]
    np.testing.assert_allclose(pair.served.logits(found), logits, atol=1e-3)
    np.testing.assert_allclose(pair.served.logits(found, 9, 70), logits, atol=1e-3)
    answer = merged.greedy(pair.model, right.embedded, 32, right.positions)
    other = pair.right(f"Look {PICTURE} well", pictures[:1])
    beside = merged.greedy(pair.model, other.embedded, 32, other.positions)
    assert len(set(answer)) > 8
    assert answer != beside
    prompts = [found, pair.prompt(f"Look {PICTURE} well", pieces[0])]
    assert await pair.served.greedy(32, *prompts) == [answer, beside]


def test_what_follows_a_long_film_comes_after_all_of_it(pair: Pair) -> None:
    prepared = pair.served.family.video(film(40, 20.0), PLAIN)
    found = pair.prompt(f"a{FILM}b", prepared)
    assert found.tokens.positions is not None
    ends = found.tokens.positions[:, found.slots[-1] + 1]
    assert ends.tolist() == [int(found.tokens.positions[:, found.slots].max()) + 1] * 3
