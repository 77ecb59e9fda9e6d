"""A small Idefics3 or SmolVLM of transformers beside the same model as it is served."""

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
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from runtime.graphs.encoders.pixels import Normalisation
from runtime.multimodal.family import Detail
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.served import Served
from tests.runtime.multimodal.words import VOCABULARY, control_tokens, number, tokenizer

FAKE, IMAGE, GLOBAL, VIDEO = "<fake_token_around_image>", "<image>", "<global-img>", "<video>"
TILES = {"idefics3": 56, "smolvlm": 60}
"""Pixels on the side of a tile: four patches, and what is left of a fifth."""

SIDE, LONGEST = 2, 224
SAMPLING = {"max_frames": 6, "fps": 2, "video_size": {"longest_edge": 112}}
PLAIN = Detail()
HALF = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3)
# As the ones on the hub, which have no place for films.
TEMPLATE = (
    "<s>{% for message in messages %}{{ message['role'] | capitalize }}:{% for line in message['content'] %}"
    "{% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
TEXT = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 70,
    "patch_size": 14,
}  # fmt: skip


@dataclass(frozen=True)
class Right:
    """What the reference makes of a prompt."""

    ids: list[int]
    pixels: NDArray[np.float32]
    features: NDArray[np.float32]
    embedded: torch.Tensor


@dataclass(frozen=True)
class Pair:
    """Both, with the reference's tokenizer and processor."""

    name: str
    model: PreTrainedModel
    words: PreTrainedTokenizerFast
    pictures: Any
    served: Served

    @property
    def tile(self) -> int:
        """Pixels on the side of a tile."""
        return TILES[self.name]

    def right(self, text: str, images: Sequence[Image.Image]) -> Right:
        """The reference's inputs and merged embeddings; `text` has `<image>` for each picture."""
        if self.name == "idefics3":
            processor = Idefics3Processor(self.pictures, self.words, image_seq_len=SIDE**2)
            given = processor(text=text, images=[list(images)], return_tensors="pt")
            return self._merged(given["input_ids"], given["pixel_values"], given["pixel_attention_mask"])
        given = self.pictures([list(images)], return_tensors="pt")
        for rows, columns in zip(given["rows"][0], given["cols"][0], strict=True):
            shown = get_image_prompt_string(rows, columns, SIDE**2, FAKE, "<IMAGE>", GLOBAL)  # type: ignore[no-untyped-call]
            text = text.replace(IMAGE, shown, 1)
        ids = self.words(text.replace("<IMAGE>", IMAGE), add_special_tokens=False, return_tensors="pt")["input_ids"]
        return self._merged(ids, given["pixel_values"], given["pixel_attention_mask"])

    def _merged(self, ids: torch.Tensor, pixels: torch.Tensor, mask: torch.Tensor) -> Right:
        model: Any = self.model.model
        with torch.inference_mode():
            features = torch.cat(list(model.get_image_features(pixels, mask).pooler_output))
        given = {"input_ids": ids, "pixel_values": pixels, "pixel_attention_mask": mask}
        embedded = merged.embedded(self.model, model.text_model, **given)
        return Right(ids[0].tolist(), pixels[0].numpy(), features.numpy(), embedded)


def _words() -> PreTrainedTokenizerFast:
    return tokenizer(*control_tokens(4, 4, FAKE, IMAGE, GLOBAL, VIDEO, "<end_of_utterance>"), template=TEMPLATE)


def make(folder: Path, root: Path, name: str) -> Pair:
    """Save a model with random weights, and build it.

    Args:
        folder: Where to save.
        root: The models folder.
        name: `idefics3` or `smolvlm`.
    """
    words = _words()
    shared: dict[str, Any] = {"text_config": TEXT, "vision_config": TOWER, "image_token_id": number(words, IMAGE)}
    options: dict[str, Any] = {
        "size": {"longest_edge": LONGEST},
        "max_image_size": {"longest_edge": TILES[name]},
        "return_row_col_info": True,
    }
    model: PreTrainedModel
    pictures: Any
    if name == "idefics3":
        model = Idefics3ForConditionalGeneration(Idefics3Config(**shared))
        pictures = Idefics3ImageProcessorPil(**options)
        Idefics3Processor(pictures, words, image_seq_len=SIDE**2, chat_template=TEMPLATE).save_pretrained(folder)
    else:
        model = SmolVLMForConditionalGeneration(SmolVLMConfig(**shared))
        pictures = SmolVLMImageProcessorPil(**options)
        words.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps({**pictures.to_dict(), "video_sampling": SAMPLING}))
    reference.randomise(model)
    model.train(False)
    reference.save(model, folder)
    return Pair(name, model, words, pictures, Served(folder, root))
