"""Qwen2-VL and Qwen2.5-VL against transformers, step by step: pixels, encoder, positions, logits, answers."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.generation.request import MEDIA_TOKEN
from runtime.multimodal.family import Detail
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import SHAPES, film, scene
from tests.runtime.multimodal.patches import normalised
from tests.runtime.multimodal.qwen_vl_pair import FILM, IMAGE, PICTURE, VIDEO, Pair, Right, make
from tests.runtime.multimodal.served import Prompt
from tests.runtime.multimodal.words import number

PLAIN = Detail()


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make(tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("root"), request.param)


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
        np.testing.assert_array_equal(found, pair.served.encode(piece)[0])


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
