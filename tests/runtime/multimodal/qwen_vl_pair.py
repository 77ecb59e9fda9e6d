"""Qwen2-VL and Qwen2.5-VL twice: what the reference makes of a prompt, and what is served here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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

from runtime.multimodal.family import Film
from runtime.multimodal.prepared import Prepared
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.patches import patches_of
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

Floats = NDArray[np.float32]
START, END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
PICTURE, FILM = f"{START}{IMAGE}{END}", f"{START}{VIDEO}{END}"
TOKEN, MOST = 28, 60
FILM_PIXELS = {"shortest_edge": 4 * TOKEN**2, "longest_edge": 12 * TOKEN**2}
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
    """One model twice."""

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


def save(folder: Path, name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, Any]:
    """Save a model with random weights; the model, its tokenizer and its processor of pictures."""
    words = tokenizer(START, END, IMAGE, VIDEO, "<|im_start|>", "<|im_end|>", template=TEMPLATE)
    model = _model(name)
    for key, token in (("image_token_id", IMAGE), ("video_token_id", VIDEO), ("vision_start_token_id", START)):
        setattr(model.config, key, number(words, token))
    reference.randomise(model)
    with torch.no_grad():
        model.get_parameter("model.visual.patch_embed.proj.weight").mul_(0.03)
    model.train(False)
    pictures = Qwen2VLImageProcessorPil(size={"shortest_edge": 56 * 56, "longest_edge": MOST * TOKEN**2})
    for part in (model, words, pictures):
        part.save_pretrained(folder)
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": FILM_PIXELS}))
    return model, words, pictures


def make(folder: Path, root: Path, name: str) -> Pair:
    """Save a model with random weights, and build it.

    Args:
        folder: Where to save.
        root: The models folder.
        name: `qwen2_vl` or `qwen2_5_vl`.
    """
    return Pair(name, *save(folder, name), Served(folder, root))
