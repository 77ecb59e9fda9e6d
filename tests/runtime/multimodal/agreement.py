"""What every family of models that see has to agree on with its reference, step by step: tokens, logits, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from bus.contracts import MediaLimits
from runtime.generation.request import MEDIA_TOKEN
from runtime.media.images import decode
from runtime.multimodal.family import Detail
from runtime.multimodal.prepared import Prepared
from tests.made.pictures import saved
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.drawn import scene
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import number

IMAGE = "<image>"


class Merged(Protocol):
    """What the reference makes of a prompt: its tokens, and their embeddings, float32 `(token, hidden)`."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def embedded(self) -> torch.Tensor: ...


@dataclass(frozen=True)
class MergedPrompt:
    """A `Merged`."""

    ids: list[int]
    embedded: torch.Tensor


class SeeingPair(Protocol):
    """A model of transformers beside the same model as it is served."""

    @property
    def model(self) -> PreTrainedModel: ...

    @property
    def words(self) -> PreTrainedTokenizerFast: ...

    @property
    def served(self) -> Served: ...

    def right(self, text: str, images: Sequence[Image.Image]) -> Merged:
        """The reference's prompt; `text` has `<image>` for each picture."""


def prompt(pair: SeeingPair, text: str, pieces: Sequence[Prepared]) -> Prompt:
    """Ours of a text that has `<image>` for each piece."""
    before, *behind = text.split(IMAGE)
    parts: list[Any] = [before]
    for words, piece, embeddings in zip(behind, pieces, pair.served.encode(*pieces), strict=True):
        parts += [(piece, embeddings), words]
    return pair.served.prompt(*parts)


def check_prompt(pair: SeeingPair, found: Prompt, right: Merged, mark: str = IMAGE) -> None:
    """Tokens, their places, and embeddings of the whole prompt."""
    placeholder = number(pair.words, mark)
    ids = found.tokens.ids.tolist()
    assert [placeholder if token == MEDIA_TOKEN else token for token in ids] == right.ids
    assert [place for place, token in enumerate(right.ids) if token == placeholder] == found.slots.tolist()
    np.testing.assert_allclose(found.embedded, right.embedded.numpy(), atol=1e-4)


async def check_one_picture(pair: SeeingPair, text: str, picture: Image.Image, cuts: tuple[int, int]) -> None:
    """Logits, whether at once or in pieces, and a long answer, also out of the prefix cache.

    Args:
        pair: Both models.
        text: With one `<image>`.
        picture: The picture.
        cuts: Where the prompt is cut when it is read in pieces.
    """
    right = pair.right(text, [picture])
    found = prompt(pair, text, [pair.served.family.image(picture, Detail())])
    check_prompt(pair, found, right)
    logits = merged.logits(pair.model, right.embedded)
    np.testing.assert_allclose(pair.served.logits(found), logits[-1], atol=1e-3)
    np.testing.assert_allclose(pair.served.logits(found, *cuts), logits[-1], atol=1e-3)
    answer = merged.greedy(pair.model, right.embedded, 32)
    assert len(set(answer)) > 8  # an answer that repeats itself would prove little
    assert await pair.served.greedy(32, found) == [answer]
    assert await pair.served.greedy(32, found) == [answer]  # with its prefix from the cache


async def check_one_prompt(
    pair: SeeingPair, text: str, pictures: Sequence[Image.Image], detail: Detail | None = None
) -> None:
    """Several pictures in one prompt."""
    right = pair.right(text, pictures)
    found = prompt(pair, text, [pair.served.family.image(one, detail or Detail()) for one in pictures])
    check_prompt(pair, found, right)
    np.testing.assert_allclose(pair.served.logits(found), merged.logits(pair.model, right.embedded)[-1], atol=1e-3)
    assert await pair.served.greedy(32, found) == [merged.greedy(pair.model, right.embedded, 32)]


async def check_together(
    pair: SeeingPair, asked: Sequence[tuple[str, Sequence[Image.Image]]], detail: Detail | None = None
) -> None:
    """Requests, and their pictures, that run together get what they would get alone."""
    family, how = pair.served.family, detail or Detail()
    pieces = [[family.image(one, how) for one in pictures] for _, pictures in asked]
    flat = [piece for some in pieces for piece in some]
    for piece, embeddings in zip(flat, pair.served.encode(*flat), strict=True):
        np.testing.assert_allclose(pair.served.encode(piece)[0], embeddings, atol=1e-5)
    prompts = [prompt(pair, text, some) for (text, _), some in zip(asked, pieces, strict=True)]
    right = [merged.greedy(pair.model, pair.right(text, pictures).embedded, 16) for text, pictures in asked]
    assert await pair.served.greedy(16, *prompts) == right


def check_shrunk(served: Served, pixels: str) -> None:
    """A photo that is shrunk while it is decoded is nearly the same.

    Args:
        served: The model.
        pixels: The encoder's input that they are, as bytes.
    """
    detail, family = Detail(level="low"), served.family
    data = saved(scene(480, 360).resize((1920, 1440)), "JPEG", quality=90)
    (whole,) = decode(data, MediaLimits())
    (shrunk,) = decode(data, MediaLimits(), resolution=lambda width, height: family.resolution(width, height, detail))
    assert shrunk.image.width < whole.image.width
    right, found = family.image(whole.image, detail), family.image(shrunk.image, detail)
    assert found.frame == right.frame
    deviation = np.abs(found.inputs[pixels].astype(int) - right.inputs[pixels])
    assert deviation.max() <= 6
    assert deviation.mean() <= 0.5
